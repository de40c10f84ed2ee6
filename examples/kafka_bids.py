"""The highest bids of each ten seconds, Kafka to Kafka, exactly once, through two crashes:
`make demo-kafka`.

A real broker is started, and Nexmark bids are produced into a topic as JSON. Spark (on Ray, through
RayDP) reads them, strom's tasks, each a Ray actor, find the highest bids per window (Nexmark q7),
and a transactional sink writes them into another topic. On the way a task is killed with SIGKILL,
and then the broker, which comes back two seconds later. In the end a read-committed consumer
compares what is in the topic with what it must be; the program exits non-zero if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from strom import (
    JobClient,
    JobConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    connect_to_ray,
)
from strom.connectors.datagen import NexmarkSource
from strom.connectors.kafka import JsonEncoder, KafkaSink
from strom.connectors.spark import SparkKafkaSource, prepare_environment, spark_session
from strom.observe.live import LiveView
from strom.testing.kafka import KafkaCluster

BIDS, HIGHEST = "bids", "highest"
PARTITIONS = 4
WINDOW_MS = 10_000
PER_SECOND = 1_000
"""Events per second of event time."""

START_MS = 1_436_918_400_000
"""Where Nexmark's event time begins."""

COLUMNS = ["auction", "price", "bidder", "at"]
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])


def produce(servers: str, events: int) -> None:
    """Bids as JSON, by a strom job in this process. `at`: event time in ms."""
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=1))
    bids = NexmarkSource(
        events, rate=PER_SECOND, columns=["auction", "price", "bidder", "dateTime"]
    )
    sink = KafkaSink(servers, BIDS, value=JsonEncoder())
    env.from_source(bids).map_batches(numbered, output_type=SCHEMA).sink_to(sink)
    env.execute("producer of bids")


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as plain numbers, so that JSON holds them exactly."""
    at = batch.column("dateTime").cast(pa.int64())
    return pa.RecordBatch.from_arrays([*batch.columns[:3], at], schema=SCHEMA)


def highest_bids(env: StreamExecutionEnvironment, servers: str) -> None:
    """Write the whole pipeline into `env`."""
    fields = ", ".join(f"{name} bigint" for name in COLUMNS)
    parsed = f"from_json(cast(value as string), '{fields}')"
    bids = SparkKafkaSource(
        servers,
        BIDS,
        stop="latest",
        select=[f"{parsed}.{name} as {name}" for name in COLUMNS],
        schema=SCHEMA,
        records_per_range=5_000,
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=4))
    (
        env.from_source(bids, strategy.with_timestamp_assigner("at"), "bids (Spark)")
        .window_all(TumblingEventTimeWindows.of(timedelta(milliseconds=WINDOW_MS)))
        .max_by("price", ties=True)
        .select(*COLUMNS)
        .name("highest bids")
        .sink_to(
            KafkaSink(
                servers,
                HIGHEST,
                value=JsonEncoder(),
                delivery="exactly-once",
                transactional_id_prefix="highest-bids",
            )
        )
        .name("highest bids (Kafka)")
    )


def watch(client: JobClient, kafka: KafkaCluster, span_ms: int, view: LiveView) -> None:
    """Show the job until it ends; kill a task after a third of the event time, the broker after
    two."""
    crashes = [(START_MS + span_ms // 3, "task"), (START_MS + 2 * span_ms // 3, "broker")]
    restarts = 0
    while not client.get_job_status().is_terminal:
        metrics = client.metrics()
        view.show(metrics)
        if metrics["restarts"] > restarts:
            restarts = metrics["restarts"]
            view.say(f"restart {restarts}: {metrics['last_failure']}")
        running = metrics["state"] == "RUNNING" and metrics["checkpoints"]["completed"] > 0
        reached = metrics["operators"][0]["watermark"] or 0
        if running and crashes and reached > crashes[0][0]:
            _, what = crashes.pop(0)
            if what == "task":
                victim = metrics["tasks"][-1]
                os.kill(victim["pid"], signal.SIGKILL)
                view.say(f"[bold red]kill -9 {victim['pid']}[/] ({victim['name']})")
            else:
                [broker] = kafka.brokers
                view.say(f"[bold red]kill -9 {broker.pid}[/] (the Kafka broker)")
                broker.kill()
                time.sleep(2.0)
                broker.start()
                broker.wait()
                view.say("[bold green]the broker is back[/]")
        time.sleep(0.1)
    view.show(client.metrics())
    if crashes:
        raise SystemExit(f"the job was over before these were killed: {crashes}")


def committed(servers: str, topic: str, partitions: int) -> Iterator[dict[str, Any]]:
    """All records of a topic that a read-committed consumer gets, to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    left = set(range(partitions))
    while left:
        message = consumer.poll(30.0)
        if message is None:
            raise SystemExit(f"nothing came from topic '{topic}' for 30 s: an open transaction?")
        if message.error() is not None:
            left.discard(message.partition())
        else:
            yield json.loads(message.value())
    consumer.close()


def expected(bids: list[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    """The same question, answered without strom: each bid at the highest price of its window."""
    best: dict[int, int] = {}
    for bid in bids:
        window = bid["at"] // WINDOW_MS
        best[window] = max(best.get(window, 0), bid["price"])
    return Counter(
        tuple(bid[name] for name in COLUMNS)
        for bid in bids
        if bid["price"] == best[bid["at"] // WINDOW_MS]
    )


def check(servers: str) -> bool:
    """Whether each result is in the topic exactly once."""
    bids = list(committed(servers, BIDS, PARTITIONS))
    wanted = expected(bids)
    found = Counter(tuple(row[name] for name in COLUMNS) for row in committed(servers, HIGHEST, 2))
    missing, doubled = wanted - found, found - wanted
    print(f"{len(bids)} bids: {wanted.total()} highest expected, {found.total()} found")
    print(f"missing: {sum(missing.values())}, more than once or wrong: {sum(doubled.values())}")
    return not missing and not doubled


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/kafka-bids"), help="checkpoints")
    parser.add_argument("--events", type=int, default=300_000, help="Nexmark events, 92 % bids")
    options = parser.parse_args(arguments)
    out = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    prepare_environment()
    print("starting Kafka and Ray ...")
    with KafkaCluster() as kafka:
        kafka.create_topic(BIDS, PARTITIONS)
        kafka.create_topic(HIGHEST, 2)
        servers = kafka.bootstrap_servers
        produce(servers, options.events)
        connect_to_ray(num_cpus=8, log_to_driver=False)
        env = StreamExecutionEnvironment.get_execution_environment(host="ray")
        env.set_parallelism(2)
        env.enable_checkpointing(timedelta(seconds=1), storage=str(out / "checkpoints"))
        highest_bids(env, servers)
        print(env.explain())
        print("starting Spark on Ray ...")
        with spark_session(), LiveView("highest bids") as view:
            client = env.execute_async("highest bids")
            watch(client, kafka, options.events * 1000 // PER_SECOND, view)
            result = client.get_job_execution_result()
        print(
            f"finished after {result.net_runtime_ms / 1000:.1f} s with {result.restarts} "
            f"restart(s) and {result.checkpoints} checkpoints"
        )
        right = check(servers)
    print("each result exactly once" if right else "RESULTS ARE MISSING, WRONG OR DOUBLED")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
