"""Drives sources and sinks without an engine."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    Wait,
    WriterContext,
)
from strom.core.clock import VirtualClock


@dataclass
class Run:
    """Enumerator and readers of one source, as the coordinator and its tasks would use them."""

    source: Any
    parallelism: int = 1
    batch_size: int = 7
    clock: VirtualClock | None = None

    def __post_init__(self) -> None:
        self.clock = self.clock or VirtualClock()
        self.batches: list[list[Any]] = [[] for _ in range(self.parallelism)]
        self.open(None, [[] for _ in range(self.parallelism)])

    def open(self, enumerator: Any, splits: list[list[Any]]) -> None:
        assert self.clock is not None
        context = EnumeratorContext("files", self.parallelism, "job")
        self.enumerator = self.source.create_enumerator(context, enumerator)
        self.readers = [
            self.source.create_reader(
                ReaderContext("files", i, self.parallelism, self.batch_size, self.clock)
            )
            for i in range(self.parallelism)
        ]
        self.done = [False] * self.parallelism
        for reader, restored in zip(self.readers, splits, strict=True):
            if restored:
                reader.add_splits(restored)

    def step(self, subtask: int) -> Any:
        """One poll; splits are handed out on demand. The poll's result."""
        polled = self.readers[subtask].poll()
        if isinstance(polled, NeedSplit):
            new = self.enumerator.next_splits(subtask)
            if new is None:
                self.done[subtask] = True
            else:
                self.readers[subtask].add_splits(new)
        elif isinstance(polled, Emit):
            self.batches[subtask].append(polled.batch)
        return polled

    def snapshot(self) -> bytes:
        """What a checkpoint holds, pickled; splits as one list."""
        splits = [split for reader in self.readers for split in reader.snapshot()]
        return pickle.dumps((self.enumerator.snapshot(), splits))

    def restored(self, snapshot: bytes, parallelism: int) -> Run:
        """A new run from a snapshot, splits dealt round-robin; keeps what was emitted before."""
        enumerator, splits = pickle.loads(snapshot)
        after = Run(self.source, parallelism, self.batch_size, self.clock)
        after.open(enumerator, [splits[i::parallelism] for i in range(parallelism)])
        # A restored source operator asks once at its start.
        for i, reader in enumerate(after.readers):
            new = after.enumerator.next_splits(i)
            if new:
                reader.add_splits(new)
        return after

    def finish(self, advance: bool = True) -> Run:
        """Poll in turns until every reader has ended; waits move the clock."""
        assert self.clock is not None
        while not all(self.done):
            waits = []
            for i in range(self.parallelism):
                if not self.done[i]:
                    polled = self.step(i)
                    waits.append(polled.until_ms if isinstance(polled, Wait) else None)
            if advance and waits and all(w is not None for w in waits):
                self.clock.advance_to(min(w for w in waits if w is not None))
        return self

    def rows(self) -> list[Any]:
        return [row for batches in self.batches for batch in batches for row in batch.rows()]


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    return Run


@pytest.fixture(scope="session")
def writer_context() -> Callable[..., WriterContext]:
    def make(
        subtask: int = 0,
        parallelism: int = 1,
        attempt: int = 0,
        job_id: str = "job-1",
        operator_id: str = "my sink",
    ) -> WriterContext:
        return WriterContext(
            operator="my sink",
            operator_id=operator_id,
            job_id=job_id,
            subtask=subtask,
            parallelism=parallelism,
            attempt=attempt,
            clock=VirtualClock(),
            publish=lambda key, value: None,
            checkpointing=True,
        )

    return make
