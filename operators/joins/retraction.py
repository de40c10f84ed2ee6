"""A changelog's records put into chains of rows and taken out again, by content.

Hashes of 64 bits find the row that a retraction takes away; then its values are compared. Should
they differ, the batch is undone, rows and records with that hash are told apart by numbers of their
contents instead, and the batch is done again. So what always happens is a hash and one comparison,
in columns, and what happens once in ages is right, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ...core.growing import GrowingList
from ...state.rows.log import RowLog
from ..contents import content_codes, same_rows
from .walking import FOR_EVER, walk

_PORTION = 1 << 15


@dataclass(frozen=True)
class Changes:
    """A batch: `hashed`: of each record's content; `numbers`: the rows that added records
    are in the log."""

    columns: list[pa.Array]
    slots: Int64s
    hashed: Int64s
    retracting: Bools
    numbers: Int64s


@dataclass(frozen=True)
class Chains:
    """The rows of one side by slot, and for each change of a batch which of them are there; see
    `kernels.chains`."""

    log: RowLog
    head: GrowingList
    link: GrowingList
    born: Int64s
    oldest: Int64s
    ordered: bool
    hashes: GrowingList

    def apply(self, changes: Changes) -> Int64s:
        """Do all changes in order: each retraction takes the newest equal row away, if there is
        one. Returns the row that each record took; -1 for none."""
        hashed = changes.hashed.copy()
        renamed: list[tuple[Int64s, Int64s]] = []
        removed, before = np.empty((2, len(hashed)), dtype=np.int64)
        while True:
            self._do(changes, hashed, removed, before)
            wrong = self._wrong(changes, removed)
            if not len(wrong):
                break
            self._undo(changes, removed, before)
            renamed.append(self._tell_apart(changes, hashed, wrong))
        if renamed:
            for rows, hashes in reversed(renamed):
                self.hashes.array[rows] = hashes
            added = ~changes.retracting
            self.hashes.array[changes.numbers[added]] = changes.hashed[added]
        return removed

    def _do(self, changes: Changes, hashed: Int64s, removed: Int64s, before: Int64s) -> None:
        from ..kernels.chains import apply_changes

        apply_changes(
            changes.slots,
            changes.numbers,
            changes.retracting,
            hashed,
            self.head.array,
            self.link.array,
            self.born,
            self.oldest,
            self.ordered,
            self.hashes.array,
            removed,
            before,
        )

    def _undo(self, changes: Changes, removed: Int64s, before: Int64s) -> None:
        from ..kernels.chains import undo_changes

        undo_changes(
            changes.slots,
            changes.numbers,
            changes.retracting,
            removed,
            before,
            self.head.array,
            self.link.array,
        )

    def _wrong(self, changes: Changes, removed: Int64s) -> Int64s:
        """Records that took a row of other content."""
        records = np.flatnonzero(removed >= 0)
        if not len(records):
            return records
        at = pa.array(records)
        mine = [take_column(column, at) for column in changes.columns]
        return records[~same_rows(mine, self.log.gather(removed[records]))]

    def _tell_apart(self, changes: Changes, hashed: Int64s, wrong: Int64s) -> tuple[Int64s, Int64s]:
        """Give rows and records of the keys and hashes of `wrong` other hashes, equal exactly where
        contents are. Returns the rows and the hashes they had."""
        slots = np.unique(changes.slots[wrong])
        chained = walk(slots, self.head, self.link, FOR_EVER, _PORTION)
        rows = np.concatenate([found for _, found, _ in chained])
        known = self.hashes.array[rows]
        records = np.flatnonzero(np.isin(changes.slots, slots))
        taken = np.concatenate([known, hashed[records]])
        mixed = np.unique(hashed[wrong])
        rows = rows[np.isin(known, mixed)]
        records = records[np.isin(hashed[records], mixed)]
        held, at = self.log.gather(rows), pa.array(records)
        mine = [take_column(column, at) for column in changes.columns]
        codes = content_codes([pa.concat_arrays(pair) for pair in zip(held, mine, strict=True)])
        free = np.setdiff1d(np.arange(len(taken) + int(codes.max()) + 1), taken)
        before = self.hashes.array[rows]
        self.hashes.array[rows] = free[codes[: len(rows)]]
        hashed[records] = free[codes[len(rows) :]]
        return rows, before
