"""Timers in tables: those of a snapshot of a queue that lies in RocksDB, and those of a restore, a
slice at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.arrays import Slots, numpy_of
from ....core.batch import take_table
from ...encoding import decode
from ...stored import StateTable
from ...timer_freeze import TimerFreeze
from ...timers import keys_of
from ..database.freeze import PieceFreeze
from ..database.layouts import tables_of
from ..database.task_database import DatabaseView
from .timer_rows import timers_layout

RESTORED = 1 << 15
"""So many restored timers are read at once."""


@dataclass(frozen=True)
class ColdTimerFreeze(PieceFreeze):
    """A point in time of a queue: `hot` is in memory, all else in RocksDB."""

    hot: TimerFreeze
    prefix: bytes
    view: DatabaseView

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        name, layout, found = self.hot.name, timers_layout(0), self.view.scan(self.prefix)
        yield from tables_of(name, "timers", layout, found, max_parallelism)
        table = self.hot.table(max_parallelism)
        if table is not None:
            yield table


class StoredTimers:
    """Those of several former subtasks."""

    def __init__(self, tables: Iterable[StateTable]) -> None:
        self._tables = list(tables)
        rows = [table.data.num_rows for table in self._tables]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self._times, self._numbers = self._column("timestamp"), self._column("sequence")

    @property
    def last(self) -> int:
        """The greatest number; 0 if there is none."""
        return int(self._numbers.max(initial=0))

    def in_order(self) -> Iterator[Iterator[tuple[int, Any, Any, int]]]:
        """(timestamp, key, namespace, number) in order of time, then of numbers, then of former
        subtasks: a slice at a time."""
        order = np.lexsort((self._numbers, self._times))
        for start in range(0, len(order), RESTORED):
            rows = order[start : start + RESTORED]
            keys, spaces = self._decoded(rows)
            times, numbers = self._times[rows].tolist(), self._numbers[rows].tolist()
            yield zip(times, keys, spaces, numbers, strict=True)

    def _column(self, name: str) -> Slots:
        found = [numpy_of(table.data.column(name)) for table in self._tables]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _decoded(self, rows: Slots) -> tuple[list[Any], list[Any]]:
        """Keys, as they are held, and namespaces."""
        keys: list[Any] = [None] * len(rows)
        spaces: list[Any] = [None] * len(rows)
        of = np.searchsorted(self._starts, rows, side="right") - 1
        by_table = np.argsort(of, kind="stable")
        ends = np.searchsorted(of[by_table], np.arange(len(self._tables) + 1))
        for number, table in enumerate(self._tables):
            at = by_table[ends[number] : ends[number + 1]]
            if not len(at):
                continue
            data = table.data.select(["key", "namespace"])
            part = replace(table, data=take_table(data, pa.array(rows[at] - self._starts[number])))
            what = f"timers '{table.name}'"
            found = decode(part.data.column("namespace"), part.metadata["namespace"], what)
            for row, key, space in zip(at.tolist(), keys_of(part), found, strict=True):
                keys[row], spaces[row] = key, space
        return keys, spaces
