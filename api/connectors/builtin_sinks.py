"""Sinks that need no outside system: collect to the client, print, discard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core.batch import Batch
from .base import PreparedCommit, Sink, SinkWriter, WriterContext

Published = tuple[str, list[Any]]
"""Publishing key and the records published under it."""


@dataclass(frozen=True)
class CollectSink(Sink):
    """Sends records to the job's client as lists, exactly once.

    With checkpointing a record is published when a checkpoint behind it completes; without, at
    once: then a restart of the job begins from the start and publishes its records again.
    """

    independent_writers = True

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return CollectWriter(context)


class CollectWriter(SinkWriter):
    """The committables hold the records themselves, so nothing is kept outside the checkpoint, and
    publishing twice under one key is dropped by the client's side."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._pending: list[Any] = []
        """Records since the last `prepare_commit`; empty for ever when not checkpointing."""
        self._batches = 0
        """Batches published at once; grows, and stays 0 while checkpointing."""

    def write(self, batch: Batch) -> None:
        if self._context.checkpointing:
            self._pending.extend(batch.rows())
            return
        key = f"{self._context.attempt}-{self._context.subtask}-{self._batches:012d}"
        self._batches += 1
        self._context.publish(key, list(batch.rows()))

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        if not self._pending:
            return []
        values, self._pending = self._pending, []
        return [(f"{self._context.subtask}-{checkpoint_id}", values)]

    def commit(self, committables: Sequence[Published]) -> None:
        for key, values in committables:
            self._context.publish(key, values)


@dataclass(frozen=True)
class PrintSink(Sink):
    """Prints each record to the subtask's standard output as soon as it arrives.

    A line is `prefix> value`; the prefix is the identifier and, with several subtasks, the number
    of the subtask from 1, as in Flink: `id:2> value`, `id> value`, `2> value`, `value`. Output is
    at least once: what was printed before a failure is printed again.
    """

    identifier: str = ""
    revocable = True
    independent_writers = True

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return PrintWriter(_print_prefix(self.identifier, context.subtask, context.parallelism))


def _print_prefix(identifier: str, subtask: int, parallelism: int) -> str:
    number = str(subtask + 1) if parallelism > 1 else ""
    prefix = ":".join(part for part in (identifier, number) if part)
    return f"{prefix}> " if prefix else ""


class _StatelessWriter(SinkWriter):
    """A writer for which checkpoints mean nothing."""

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        return []

    def commit(self, committables: Sequence[Any]) -> None:
        """There is never anything to publish."""


class PrintWriter(_StatelessWriter):
    """One write to standard output per batch, so lines of several subtasks do not interleave."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def write(self, batch: Batch) -> None:
        sys.stdout.write("".join(f"{self._prefix}{value}\n" for value in batch.rows()))
        sys.stdout.flush()


@dataclass(frozen=True)
class DiscardSink(Sink):
    """Drops every record."""

    revocable = True
    independent_writers = True

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return DiscardWriter()


class DiscardWriter(_StatelessWriter):
    def write(self, batch: Batch) -> None:
        """Nothing to do."""
