"""A real Kafka of one or several brokers on loopback, for tests and demos.

    with KafkaCluster() as kafka:
        kafka.create_topic("bids", partitions=4)
        ... kafka.bootstrap_servers ...

KRaft mode, version `VERSION`, in a temporary folder on free ports; the jars come from Maven Central
once (`connectors.spark.jars`). The first broker is the controller, too, so it is the others that a
test may lose for good. Nothing but loopback listens.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..connectors.spark.jars import jars_of
from ..connectors.spark.java import spark_environment
from ..core.errors import StromError

VERSION: Final = "4.1.0"

COORDINATES: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}",)

CLUSTER_ID: Final = "c3Ryb20tdGVzdC1rYWZrYQ"
"""22 characters that Kafka takes for the id of a cluster; the same for all, which are apart."""

HEAP: Final = "-Xmx512m"

START_S: Final = 120.0
"""A broker answers after about ten seconds; on a busy machine after a minute."""

STOP_S: Final = 30.0

PR_SET_PDEATHSIG: Final = 1
"""Of prctl(2): the signal a process gets when the thread that made it ends."""

_SHOWN: Final = 2_000
"""Characters of a broker's log that a message quotes."""


class KafkaError(StromError):
    """A broker did not start, or does not answer."""


class KafkaBroker:
    """One process. It keeps its folder and ports when it is stopped or killed, and comes back with
    what it had."""

    def __init__(self, node: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.node = node
        self.port = int(settings["listeners"].split("//")[1].split(",")[0].split(":")[1])
        self._folder = folder
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder.mkdir()
        self._properties = folder / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the broker's Java. Only while it is alive."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin to start; `wait` until it answers."""
        assert not self.alive, "the broker runs"
        if not (self._folder / "data" / "meta.properties").exists():
            self._run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_java(), "kafka.Kafka", str(self._properties)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def wait(self, timeout_s: float = START_S) -> None:
        """Until the broker takes connections. Raises KafkaError."""
        deadline = time.monotonic() + timeout_s
        while not _answers(self.port):
            if not self.alive:
                raise KafkaError(f"Kafka broker {self.node} ended: {self._said()}")
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"Kafka broker {self.node} does not answer after {timeout_s:.0f} s: "
                    f"{self._said()}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """As an operator would: it says farewell and writes what it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """At once, like a power cut."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It hangs: its connections stay and nothing comes."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def _log(self) -> Path:
        return self._folder / "broker.log"

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, how)
            os.kill(self._process.pid, signal.SIGCONT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _run_tool(self, *words: str) -> None:
        done = subprocess.run(
            [*_java(), *words, str(self._properties)],
            capture_output=True,
            text=True,
            cwd=self._folder,
            timeout=START_S,
            check=False,
        )
        if done.returncode:
            raise KafkaError(f"{words[0]} failed: {(done.stdout + done.stderr)[-_SHOWN:]}")

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_SHOWN:]


class KafkaCluster:
    """Brokers from `start` (or `with`) on. They end with the thread that started them, at the
    latest.

    settings: added to those of each broker. protocol: what clients speak (`SASL_SSL`, ...), whose
        certificates and users `settings` name. client: what a client needs for that.
    """

    def __init__(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
        client: Mapping[str, str] | None = None,
    ) -> None:
        self._client = dict(client or {})
        self._folder = Path(tempfile.mkdtemp(prefix="strom-kafka-"))
        ports = _free_ports(brokers + 1)
        controller, listening = ports[0], ports[1:]
        self.brokers = [
            KafkaBroker(
                node,
                self._folder / f"broker-{node}",
                {
                    **_settings(node, port, controller, self._folder, brokers, protocol),
                    **(settings or {}),
                },
            )
            for node, port in enumerate(listening, 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait()

    def stop(self) -> None:
        """All brokers, and everything they wrote."""
        for broker in reversed(self.brokers):
            broker.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, **configuration: Any
    ) -> None:
        """Returns when it can be written. Names of settings with `_` for `.`."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        client = AdminClient({**self._client, "bootstrap.servers": self.bootstrap_servers})
        settings = {key.replace("_", "."): str(value) for key, value in configuration.items()}
        topic = NewTopic(name, partitions, replicas, config=settings)
        client.create_topics([topic])[name].result(START_S)
        deadline = time.monotonic() + START_S
        while not _led(client, name, partitions):
            if time.monotonic() > deadline:
                raise KafkaError(f"topic '{name}' has no leaders after {START_S:.0f} s")
            time.sleep(0.05)

    def __enter__(self) -> KafkaCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _settings(
    node: int, port: int, controller: int, folder: Path, brokers: int, protocol: str
) -> dict[str, str]:
    listeners = f"{protocol}://127.0.0.1:{port}"
    first = node == 1
    replicas = str(min(brokers, 3))
    return {
        "process.roles": "broker,controller" if first else "broker",
        "node.id": str(node),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}" if first else listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": protocol,
        "log.dirs": str(folder / f"broker-{node}" / "data"),
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # Records with times of long ago, as tests have them, would be gone within a second.
        "log.retention.ms": "-1",
        "log.retention.check.interval.ms": "1000",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }


def _die_with_parent() -> None:
    """In the broker's process, before it is one: a test program that is killed leaves none behind
    (on Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _java() -> list[str]:
    environment = {**os.environ, **spark_environment()}
    found = shutil.which("java", path=environment["PATH"])
    assert found is not None, "spark_environment has found one"
    jars = os.pathsep.join(map(str, jars_of(COORDINATES)))
    return [found, HEAP, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _led(client: Any, topic: str, partitions: int) -> bool:
    found = client.list_topics(topic, timeout=START_S).topics[topic].partitions
    return len(found) == partitions and all(part.leader >= 0 for part in found.values())


def _free_ports(count: int) -> list[int]:
    """Free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def main() -> None:
    """A broker until Ctrl-C: `make kafka`. With topics as arguments (`name` or `name:partitions`)
    these are made; with `--fetch` its jars are, and nothing starts."""
    if sys.argv[1:] == ["--fetch"]:
        jars_of(COORDINATES)
        return
    wanted = [name.partition(":") for name in sys.argv[1:]]
    with KafkaCluster() as kafka:
        for name, _, partitions in wanted:
            kafka.create_topic(name, int(partitions or 1))
        print(f"Kafka {VERSION} at {kafka.bootstrap_servers}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
