"""What state is made of in snapshots, and how numbers per key are declared: a leaf of `state`."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from .increments import Layer
from .migration import NO_MIGRATION, StateMigration

KEY_GROUP = "__key_group"
"""First column of every keyed StateTable: int32, ascending."""


@dataclass(frozen=True)
class StateTable:
    """One state of one operator's subtask, as Arrow. `data` starts with KEY_GROUP (keyed state
    only).

    `kind` says which face wrote it ("value", "list", "map", "reducing", "aggregating", "timers",
    "table", "entries", "rows", "values", "buffer", "event_time"); `metadata` whatever that face
    needs to read it back (text only).
    """

    name: str
    kind: str
    data: pa.Table
    metadata: dict[str, str] = field(default_factory=dict)
    layer: Layer = "whole"
    """Only a snapshot gives others than whole ones; what is restored is whole."""
    migration: StateMigration = NO_MIGRATION
    """What the program says of it at a restore; in no snapshot."""


@dataclass(frozen=True)
class AccColumn:
    """A column of numbers per slot: numpy dtype name and the value of a new slot.

    Numbers that have to lie in one cache line are a column of dtype "V<bytes>", initially 0 (None:
    anything); `words` names those of its 8-byte words that are state, int64 in snapshots."""

    name: str
    dtype: str
    initial: float | int | bool | None = 0
    words: tuple[str | None, ...] = ()
