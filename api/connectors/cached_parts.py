"""What hosts keep of cached streams: parts of batches, put by a sink, read by a source (`cached`).

A token stands for one production of a stream. Its records are complete when all subtasks of one
attempt have committed their end: then, and only then, `parts` tells them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ...core import code_pickles
from ...core.batch import Batch
from ...core.batch_data import BatchData, batch_data, batch_of
from .base import Sink, Source


@dataclass(frozen=True, slots=True)
class Part:
    """One part of what a subtask wrote. `writer`: unlike that of any other, also of other attempts,
    so that no part is ever written over."""

    subtask: int
    writer: str
    number: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A committable: the part counts once this checkpoint is complete."""

    part: Part
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A committable: in this attempt of the job the subtask has no more parts. After a restart all
    subtasks end again, so ends of different attempts never make up a whole."""

    subtask: int
    parallelism: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A committable, of each checkpoint from the one on that lacks records: this subtask has given
    up. Whoever gets it after a restart gives up, too."""

    subtask: int


class PartStore(Protocol):
    """What sinks and sources reach from wherever they run. All may raise if the store is gone."""

    def put(self, token: str, part: Part, data: Any) -> None: ...
    def commit(self, token: str, kept: Sequence[Kept], ended: Sequence[Ended]) -> None: ...

    def revoke(self, token: str, after: int) -> None:
        """Forget what was committed at checkpoints after this one."""
        ...

    def drop(self, token: str) -> None:
        """It is never to be complete: free it, and take no more of it."""
        ...

    def parts(self, token: str) -> list[Part] | None:
        """Those committed, in order; None if they are not complete, or not here."""
        ...

    def get(self, token: str, part: Part) -> Any:
        """What was put. KeyError if it is not there."""
        ...


class StoreAccess(Protocol):
    """Picklable: leads to a store from any process of the job."""

    def open(self) -> PartStore: ...


class CacheStore(Protocol):
    """The program's side of a host's store."""

    def sink(self, token: str | None, node: int) -> Sink: ...
    def source(self, token: str, schema: pa.Schema | None) -> Source: ...

    def holds(self, token: str) -> bool:
        """Whether all records of the token are there."""
        ...

    def drop(self, token: str) -> None:
        """Free them; also those still being written."""
        ...

    def close(self) -> None:
        """Free all."""
        ...


def sealed_batch(batch: Batch) -> BatchData:
    """As plain data, which shares nothing with the records. Raises what pickling them raises."""
    return batch_data(batch, code_pickles.dumps)


def opened_batch(data: BatchData) -> Batch:
    """What was sealed; each call gives new objects."""
    return batch_of(data, pickle.loads)
