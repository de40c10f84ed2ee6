"""A file sink on a store of which calls fail for a time: commits are tried again, tasks and jobs
begin again, and each record is published once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, get_args

import fsspec
import pytest
from amounts import seeds
from fsspec.implementations.memory import MemoryFileSystem
from strom import JobConfig
from strom.api.specs.records import SinkSpec
from strom.connectors.files import FileCompactStrategy, FileSink
from strom.core.commit_config import CommitConfig
from strom.core.errors import StromError
from strom.operators.io.sink import SinkOperator
from strom.testing.faulty_filesystem import Call, Faults, FaultyFileSystem, VendorError
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

CHECKPOINTS = 12
PATIENT = CommitConfig(retries=10_000, timeout=timedelta(days=9))


class Shaky(FaultyFileSystem):
    """What `shaky://` opens; each operator opens it anew."""

    protocol = "shaky"
    faults_of_all = Faults()
    object_store_of_all = True

    def __init__(self, **options: Any) -> None:
        super().__init__(MemoryFileSystem(), type(self).faults_of_all, self.object_store_of_all)


@pytest.fixture(autouse=True)
def shaky() -> Iterator[None]:
    fsspec.register_implementation("shaky", Shaky, clobber=True)
    yield
    memory = MemoryFileSystem()
    with suppress(FileNotFoundError):
        memory.rm("/shaky", recursive=True)


class Run:
    """One subtask through attempts: what fails it, or the job, lets it begin again from the last
    complete checkpoint, and read the records behind that once more."""

    def __init__(self, sink: FileSink, faults: Faults, rng: random.Random) -> None:
        self._spec = SinkSpec(sink)
        self._faults = faults
        self._rng = rng
        self._done: tuple[int, OperatorSnapshotTables | None] = 0, None
        """How many records the last complete checkpoint is behind, and what it has."""
        self._number = 0
        self.failures: list[Exception] = []
        self._attempt = -1

    def through(self) -> None:
        while len(self.failures) < 500:
            try:
                return self._run()
            except (StromError, OSError, VendorError) as error:
                self.failures.append(error)
            finally:
                self._operator.close()
        raise AssertionError(f"it comes no further: {self.failures[-1]}")

    def _run(self) -> None:
        records, restored = self._done
        self._attempt += 1
        if self._attempt > 5:
            self._faults.stop()
        self._operator = operator = SinkOperator(self._spec)
        config = JobConfig(commit=PATIENT)
        harness = OperatorHarness(operator, config=config, restored=restored, attempt=self._attempt)
        self._harness, harness._checkpoint = harness, self._number
        self._settled()
        over = False
        while not over:
            for _ in range(self._rng.randrange(3)):
                harness.push([{"n": records}])
                records += 1
            self._number += 1
            if over := self._number >= CHECKPOINTS:
                harness.operator.finish()
            taken = harness.snapshot()
            self._done = records, taken
            harness._call(lambda: harness.operator.notify_checkpoint_complete(self._number))
            if self._rng.random() < 0.7:
                self._settled()
            if self._attempt < 4 and self._rng.random() < 0.15:
                raise OSError("a crash")
        self._settled()

    def _settled(self) -> None:
        """What is tried again goes well, or fails for good."""
        harness = self._harness
        tries = 0
        while tries < 20 or not harness.settled or harness.operator.holds_end:
            tries += 1
            harness.advance_processing_time(harness.clock.now_ms() + 60_000)

    @property
    def records(self) -> int:
        return self._done[0]


MERGED = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()


@pytest.mark.parametrize("seed", seeds(13))
@pytest.mark.parametrize("compact", [None, MERGED], ids=["plain", "compacts"])
@pytest.mark.parametrize("call", get_args(Call))
def test_each_record_is_published_once_whatever_call_fails(
    monkeypatch: pytest.MonkeyPatch, call: Call, compact: Any, seed: int
) -> None:
    rng = random.Random(f"{call}-{seed}-{compact is None}")
    faults = Faults(rng.randrange(1 << 30), rng.choice((0.1, 0.3, 0.6)), calls=[call])
    monkeypatch.setattr(Shaky, "faults_of_all", faults)
    monkeypatch.setattr(Shaky, "object_store_of_all", rng.random() < 0.5)
    run = Run(FileSink("shaky://shaky/out", format="jsonl", compact=compact), faults, rng)
    run.through()
    memory = MemoryFileSystem()
    files = [f for f in memory.find("/shaky/out") if "/." not in f]
    lines = [line for f in files for line in memory.cat_file(f).decode().splitlines()]
    assert run.records
    assert all(getattr(one, "recoverable", True) for one in run.failures), "it passes"
    assert sorted(json.loads(line)["n"] for line in lines) == list(range(run.records))
