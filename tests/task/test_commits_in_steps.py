"""A task whose sink waits for a database hears its mail, and ends only behind the commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from strom import CheckpointConfig, JobConfig, Sink, SinkWriter, StreamExecutionEnvironment
from strom.core.batch import Batch
from strom.core.job_status import JobStatus


class Gate:
    """What the writers of a test wait for, and tell: in a folder, for a sink is pickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, name: str) -> None:
        (self.folder / name).touch()

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def wait(self, name: str) -> None:
        deadline = time.monotonic() + 20
        while not self.has(name):
            assert time.monotonic() < deadline, f"nobody is {name}"
            time.sleep(0.01)

    def publish(self, rows: Sequence[Any]) -> None:
        with (self.folder / "published").open("a") as file:
            file.writelines(f"{row}\n" for row in rows)

    @property
    def published(self) -> list[int]:
        return [int(row) for row in (self.folder / "published").read_text().split()]


class GatedWriter(SinkWriter):
    """`where`: in which of its methods it waits for the gate."""

    def __init__(self, gate: Gate, where: str) -> None:
        self._gate = gate
        self._where = where
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> Iterator[None]:
        yield from self._wait("write")
        self._rows.extend(batch.rows())

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        rows, self._rows = self._rows, []
        return rows

    def commit(self, committables: Sequence[Any]) -> Iterator[None]:
        yield from self._wait("commit")
        self._gate.publish(committables)

    def close(self) -> None:
        self._gate.set("closed")

    def _wait(self, method: str) -> Iterator[None]:
        while method == self._where and not self._gate.has("open"):
            self._gate.set("begun")
            time.sleep(0.005)
            yield


class GatedSink(Sink):
    def __init__(self, gate: Gate, where: str) -> None:
        self._made = (gate, where)

    def create_writer(self, context: Any) -> SinkWriter:
        return GatedWriter(*self._made)


def started(gate: Gate, where: str) -> Any:
    checkpoint = CheckpointConfig(interval=timedelta(milliseconds=20))
    config = JobConfig(parallelism=1, checkpoint=checkpoint)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection(list(range(10))).sink_to(GatedSink(gate, where))
    return env.execute_async("gated")


WAITS = pytest.mark.parametrize("where", ["write", "commit"])


@WAITS
def test_a_cancel_is_heard_meanwhile(where: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    client = started(gate, where)
    gate.wait("begun")
    begun = time.monotonic()
    client.cancel()
    assert time.monotonic() - begun < 5
    assert client.get_job_status() is JobStatus.CANCELED
    assert gate.has("closed")
    assert not gate.has("published")


@WAITS
def test_a_job_ends_behind_its_commit(where: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    client = started(gate, where)
    gate.wait("begun")
    threading.Timer(0.2, gate.set, ("open",)).start()
    client.get_job_execution_result(timedelta(seconds=20))
    assert sorted(gate.published) == list(range(10))
    assert gate.has("closed")
