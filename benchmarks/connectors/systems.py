"""The broker and the Sparks that the measurements of one run share. Each starts when it is first
asked for, and ends with the run."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import psutil
from strom.testing.kafka import KafkaCluster

from .lines import WrongResult
from .reading import offsets
from .topics import Content, fill

PARTITIONS = 4
"""Of every topic."""

VISIBLE_S = 10.0
"""A broker shows the records of a transaction some time after its commit."""


class Systems:
    """Use with `with`. What is given is used, and left as it is in the end."""

    def __init__(self, kafka: KafkaCluster | None = None, gateway: Any = None, session: Any = None):
        self._given = {"kafka": kafka, "gateway": gateway, "session": session}
        self._started = ExitStack()
        self._topics: dict[tuple[Content, int, int], str] = {}
        """Filled already: content, bytes of a value, records."""
        self._made = 0

    def __enter__(self) -> Systems:
        return self

    def __exit__(self, *error: object) -> None:
        self._started.close()

    def prepare_spark(self) -> None:
        """Before Ray starts, if Spark is to run inside it."""
        from strom.connectors.spark import prepare_environment

        prepare_environment()

    @cached_property
    def kafka(self) -> KafkaCluster:
        """One broker."""
        given = self._given["kafka"]
        return given or self._started.enter_context(KafkaCluster())

    @property
    def servers(self) -> str:
        return self.kafka.bootstrap_servers

    @cached_property
    def gateway(self) -> Any:
        """The gateway of strom's Spark, which runs inside Ray with two cores; started, with what
        it needs for Kafka."""
        if self._given["gateway"] is not None:
            return self._given["gateway"]
        from strom import connect_to_ray
        from strom.connectors.spark import spark_session

        self.prepare_spark()
        connect_to_ray(log_to_driver=False)
        return self._started.enter_context(spark_session())

    @cached_property
    def session(self) -> Any:
        """A Spark session of this process with two cores and the jars for Kafka: a user's own."""
        if self._given["session"] is not None:
            return self._given["session"]
        session = _local_spark()
        self._started.callback(session.stop)
        return session

    def topic(self, content: Content, size: int, count: int) -> str:
        """A topic of so many records with values of `size` bytes; filled once in a run."""
        known = content, size, count
        if known not in self._topics:
            name = self.new_topic(f"{content}-{size}")
            fill(self.servers, name, content, size, count, PARTITIONS)
            self._topics[known] = name
        return self._topics[known]

    def new_topic(self, what: str) -> str:
        """An empty one."""
        self._made += 1
        name = f"bench-{what}-{id(self):x}-{self._made}"
        self.kafka.create_topic(name, PARTITIONS)
        return name

    def check_written(self, topic: str, wanted: int, transactions: int = 0) -> None:
        """Raises WrongResult unless `wanted` records are in the topic, as far as offsets tell:
        each of the transactions may take one more in each partition. All must be committed."""
        deadline = time.monotonic() + VISIBLE_S
        first, last = offsets(self.servers, topic, PARTITIONS)
        while last - first < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
            first, last = offsets(self.servers, topic, PARTITIONS)
        if not wanted <= last - first <= wanted + transactions * PARTITIONS:
            raise WrongResult(
                f"{last - first} committed offsets in '{topic}', {wanted} records and "
                f"{transactions} transactions were written"
            )

    def drop_topic(self, name: str) -> None:
        """Gives its space back."""
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.servers})
        client.delete_topics([name])[name].result(30.0)

    def broker_cpu_s(self) -> float:
        """What the broker has used so far."""
        return cpu_s([psutil.Process(self.kafka.brokers[0].pid)])

    def spark_cpu_s(self) -> float:
        """What the Spark inside Ray has used so far: its JVMs and the gateway."""
        import ray

        gateway = ray.get(self.gateway.statistics.remote())["pid"]
        return cpu_s([*javas(), psutil.Process(gateway)])


def javas() -> list[psutil.Process]:
    """The JVMs below this process, but for brokers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name() == "java" and "kafka.Kafka" not in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def cpu_s(processes: list[psutil.Process]) -> float:
    """Those that are gone meanwhile count as nothing."""
    total = 0.0
    for process in processes:
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system
    return total


def _local_spark() -> Any:
    from pyspark.sql import SparkSession
    from strom.connectors.spark import kafka_jars, prepare_environment
    from strom.connectors.spark.java import module_openings

    prepare_environment()
    settings = {
        "spark.driver.extraJavaOptions": module_openings(),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": kafka_jars(),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
