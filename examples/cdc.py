"""A table that changes, joined with a stream, into another table, exact through crashes.

A real PostgreSQL has a table of customers, which a program goes on changing; a real Kafka gets
orders. strom's tasks, each a Ray actor, capture the changes from the server's replication log, join
each order with its customer as the customer is now, and keep the result in a table: when a customer
changes, so do the rows of all its orders. On the way a task is killed with SIGKILL, then the
database, then the broker. In the end the table is compared with the same join in SQL; the program
exits non-zero if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
from confluent_kafka import Producer
from strom import JobClient, StreamExecutionEnvironment, connect_to_ray
from strom.connectors.kafka import JsonFormat, KafkaSource
from strom.connectors.postgres import PostgresCdcSource, PostgresConnection, PostgresUpsertSink
from strom.testing.kafka import KafkaCluster
from strom.testing.postgres import PostgresServer

CUSTOMERS = 200
TOPIC = "orders"
ORDER = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64())])

TABLES = """
CREATE TABLE customers (customer bigint PRIMARY KEY, name text NOT NULL, tier int NOT NULL);
ALTER TABLE customers REPLICA IDENTITY FULL;
CREATE TABLE enriched (id bigint PRIMARY KEY, name text, tier int, amount bigint);
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount bigint)
"""
"""`orders` is only for the comparison in the end; the job does not see it."""

DIFFERENCE = """
WITH wanted AS (
    SELECT o.id, c.name, c.tier, o.amount FROM orders o JOIN customers c USING (customer)
)
SELECT (SELECT count(*) FROM wanted),
       (SELECT count(*) FROM (TABLE wanted EXCEPT TABLE enriched) m),
       (SELECT count(*) FROM (TABLE enriched EXCEPT TABLE wanted) m)
"""
"""How many rows there must be, how many are missing, and how many are there and should not."""


def enriched_orders(env: StreamExecutionEnvironment, database: str, servers: str) -> None:
    """Write the whole pipeline into `env`."""
    shop = PostgresConnection(database, patience=timedelta(minutes=1))
    customers = env.from_source(
        PostgresCdcSource(shop, "customers", slot="customers"), source_name="customers (PostgreSQL)"
    )
    orders = env.from_source(
        KafkaSource(servers, TOPIC, value=JsonFormat(ORDER)), source_name="orders (Kafka)"
    )
    (
        orders.key_by("customer")
        .join(customers.key_by("customer"))
        .name("orders with customers")
        .select("id", "name", "tier", "amount")
        .key_by("id")
        .sink_to(PostgresUpsertSink(shop, "enriched", key="id"))
        .name("enriched (PostgreSQL)")
    )


class Shop:
    """Changes customers and places orders until it is told to stop, whatever else happens."""

    def __init__(self, database: str, servers: str) -> None:
        self._database = database
        self._producer = Producer({"bootstrap.servers": servers})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.changes = self.orders = 0

    def open(self) -> None:
        with psycopg.connect(self._database) as connection:
            connection.execute(TABLES)
            for number in range(CUSTOMERS):
                row = (number, f"customer {number}", 0)
                connection.execute("INSERT INTO customers VALUES (%s, %s, %s)", row)
        self._thread.start()

    def close(self) -> None:
        """Everything said has been heard when this returns."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60.0) == 0, "Kafka did not take all orders"

    def _run(self) -> None:
        draw = random.Random(7)
        while not self._over.wait(0.005):
            try:
                with psycopg.connect(self._database) as connection:
                    while not self._over.wait(0.005):
                        self._act(connection, draw)
            except psycopg.OperationalError:
                time.sleep(0.2)  # the database is away

    def _act(self, connection: psycopg.Connection, draw: random.Random) -> None:
        """One transaction: a few changes, and an order that is told to Kafka once it is there."""
        for _ in range(draw.randint(1, 4)):
            number = draw.randrange(CUSTOMERS)
            if draw.random() < 0.1:
                connection.execute("DELETE FROM customers WHERE customer = %s", (number,))
            else:
                connection.execute(
                    "INSERT INTO customers VALUES (%s, %s, %s) ON CONFLICT (customer) "
                    "DO UPDATE SET tier = excluded.tier",
                    (number, f"customer {number}", draw.randrange(5)),
                )
        order = {
            "id": self.orders,
            "customer": draw.randrange(CUSTOMERS),
            "amount": draw.randrange(100),
        }
        connection.execute("INSERT INTO orders VALUES (%(id)s, %(customer)s, %(amount)s)", order)
        connection.commit()
        self._producer.produce(TOPIC, json.dumps(order))
        self._producer.poll(0)
        self.orders += 1
        self.changes += 1


def crash(client: JobClient, database: PostgresServer, kafka: KafkaCluster) -> None:
    """One after the other, each when the job has taken checkpoints since the one before."""

    def a_task() -> None:
        victim = client.metrics()["tasks"][-1]
        print(f"kill -9 {victim['pid']} ({victim['name']})")
        os.kill(victim["pid"], signal.SIGKILL)

    def the_database() -> None:
        print("kill -9 (PostgreSQL)")
        database.kill()
        time.sleep(1.0)
        database.start()

    def the_broker() -> None:
        [broker] = kafka.brokers
        print(f"kill -9 {broker.pid} (the Kafka broker)")
        broker.kill()
        time.sleep(1.0)
        broker.start()
        broker.wait()

    for what in (a_task, the_database, the_broker):
        seen = client.metrics()["checkpoints"]["completed"]
        wait_until(
            lambda seen=seen: client.metrics()["checkpoints"]["completed"] >= seen + 3,
            "checkpoints",
        )
        what()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"no {what} within {seconds:.0f} s")
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/cdc"), help="checkpoints")
    options = parser.parse_args(arguments)
    out = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    print("starting PostgreSQL, Kafka and Ray ...")
    with PostgresServer() as database, KafkaCluster() as kafka:
        kafka.create_topic(TOPIC, 2)
        shop = Shop(database.conninfo, kafka.bootstrap_servers)
        shop.open()
        connect_to_ray(num_cpus=8, log_to_driver=False)
        env = StreamExecutionEnvironment.get_execution_environment(host="ray")
        env.set_parallelism(2)
        env.enable_checkpointing(timedelta(seconds=1), storage=str(out / "checkpoints"))
        enriched_orders(env, database.conninfo, kafka.bootstrap_servers)
        client = env.execute_async("enriched orders")
        crash(client, database, kafka)
        shop.close()
        print(f"{shop.orders} orders, {shop.changes} transactions on customers")

        def difference() -> tuple[int, ...]:
            [found] = database.run(DIFFERENCE)
            return tuple(found)

        deadline = time.monotonic() + 60.0
        while any(difference()[1:]) and time.monotonic() < deadline:
            time.sleep(0.5)
        wanted, missing, wrong = difference()
        restarts = client.metrics()["restarts"]
        client.cancel()
    print(f"{wanted} rows expected after {restarts} restart(s): {missing} missing, {wrong} wrong")
    right = wanted > 0 and not missing and not wrong
    print("the table equals the join in SQL" if right else "THE TABLE DIFFERS FROM THE JOIN IN SQL")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
