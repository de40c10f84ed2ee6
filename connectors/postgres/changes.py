"""Messages of `pgoutput` become batches of a changelog, and positions behind them. No connection.

    retract   +I  -U +U  -D   whole rows; the table must have REPLICA IDENTITY FULL
    upsert    +I     +U  -D   a -D has the key columns alone, the others are null; an update that
                              changes the key is -D and +I

Each row has the time of its transaction's commit as its timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ...core.batch import ColumnBatch
from ...core.errors import ConnectorError
from ...core.row_kind import ROW_KIND_FIELD, RowKind, with_kinds
from .captured import ANEW, gone, rekeyed, retyped, widened
from .pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Decoded,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    Values,
)
from .positions import CdcSplit, Key
from .replication import EPOCH_US, show_lsn
from .tables import TableColumn, TableInfo
from .texts import typed

Changelog = Literal["retract", "upsert"]

PlaceOf = Callable[[Sequence[Key]], Sequence[int]]
"""In which part of a split each key was read; only the database knows the order of its keys."""


class Changes:
    """Collects the changes of one table from a position on. Made anew with each connection.

    Invariants: `_lsn` and, in a transaction, `_count` are behind the last message fed; `_rows`,
    `_kinds` and `_stamps` have an entry for each row since the last `take`.
    """

    def __init__(
        self,
        info: TableInfo,
        columns: Sequence[TableColumn],
        every_column: bool,
        changelog: Changelog,
        split: CdcSplit,
        place_of: PlaceOf,
    ) -> None:
        self._info = info
        self._columns = columns
        self._every_column = every_column
        self._upsert = changelog == "upsert"
        self._split = split
        self._place_of = place_of
        self._schema = pa.schema([(column.name, column.type) for column in columns])
        names = [column.name for column in columns]
        self._keys = [names.index(name) for name in info.key if name in names]
        self._lsn = split.lsn
        self._begin: Begin | None = None
        self._count = 0
        """Changes of the transaction so far, of whatever table."""
        self._emitted = split.skip
        """Of the transaction that commits at `split.within`, until it is over."""
        self._shown: bool | None = False
        self._stamp = 0
        self._places: list[int] = []
        """Where in a message's values our columns are."""
        self._key_places: list[int] = []
        self._rows: list[list[Any]] = []
        self._kinds: list[int] = []
        self._stamps: list[int] = []
        self.size = 0
        """Bytes of the messages that the rows are of."""
        self._doubts: list[tuple[int, Begin]] = []
        """Rows of transactions that some parts show."""
        self._done = split.stop_lsn is not None and split.lsn >= split.stop_lsn

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def done(self) -> bool:
        """Of a bounded capture: there is nothing more to come before its end."""
        return self._done

    @property
    def moved(self) -> bool:
        """Whether `take` would give rows, or a later position."""
        return bool(self._rows) or self._lsn > self._split.lsn

    def feed(self, message: Decoded, size: int) -> None:
        """The next message, of `size` bytes. Raises ConnectorError for what a changelog cannot
        say."""
        if self._done:
            return
        before = len(self._rows)
        match message:
            case Begin():
                self._enter(message)
            case Commit(commit_lsn, end_lsn):
                if commit_lsn == self._split.within:
                    self._emitted = 0
                self._begin = None
                self._reached(end_lsn)
            case Relation():
                self._check(message)
            case Truncate(relations):
                if self._info.oid in relations and self._shown is not True:
                    raise ConnectorError(
                        f"table {self._info.shown} was truncated at {show_lsn(self._lsn)}, which "
                        "no changelog can say: empty what was made of it, drop the slot, and start "
                        "the job anew without its checkpoint; DELETE can be captured"
                    )
            case Insert() | Update() | Delete():
                self._change(message)
        if len(self._rows) > before:
            self.size += size

    def alive(self, end: int) -> None:
        """The server says that everything that committed before `end` has been sent. Within a
        transaction that says nothing of what we have of it."""
        if self._begin is None and not self._done:
            self._reached(end)

    def take(self) -> tuple[ColumnBatch | None, CdcSplit]:
        """The rows since the last call, and the position behind them."""
        kinds, keep = self._resolved()
        self._split = self._position()
        rows, stamps = self._rows, np.array(self._stamps, np.int64)
        self._rows, self._kinds, self._stamps, self._doubts = [], [], [], []
        self.size = 0
        if not rows:
            return None, self._split
        columns = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
        texts = [column.cast(pa.string()) for column in columns]
        batch = ColumnBatch(with_kinds(typed(texts, self._schema), kinds), stamps)
        return (batch if keep.all() else batch.filter(keep)), self._split

    def _position(self) -> CdcSplit:
        begin = self._begin
        if self._emitted and (begin is None or begin.commit_lsn == self._split.within):
            # The transaction emitted in part has not come again as far as we had it, or at all.
            known = max(self._emitted, self._count if begin is not None else 0)
            return self._split.streamed(self._lsn, self._split.within, known)
        if begin is None or not self._count:
            return self._split.streamed(self._lsn)
        return self._split.streamed(self._lsn, begin.commit_lsn, self._count)

    def _enter(self, begin: Begin) -> None:
        stop, within = self._split.stop_lsn, self._split.within
        if stop is not None and begin.commit_lsn >= stop:
            self._done = True
            return
        if begin.commit_lsn > within:
            self._expect_nothing_more()
        self._begin = begin
        self._count = 0
        self._stamp = (begin.time_us + EPOCH_US) // 1000
        before = begin.commit_lsn < self._lsn
        self._shown = before or self._split.shown(begin.xid, begin.commit_lsn)

    def _reached(self, lsn: int) -> None:
        if lsn > self._split.within:
            self._expect_nothing_more()
        self._count = 0
        self._lsn = max(self._lsn, lsn)
        stop = self._split.stop_lsn
        self._done = stop is not None and self._lsn >= stop

    def _expect_nothing_more(self) -> None:
        """The stream is behind the transaction that was emitted in part."""
        if self._emitted:
            raise ConnectorError(
                f"slot '{self._split.slot}' does not give the transaction at "
                f"{show_lsn(self._split.within)} again, of which a part was read: was the slot "
                "advanced or made anew? Start the job without its checkpoint"
            )

    def _check(self, relation: Relation) -> None:
        """The table must be what the job was made for."""
        mine = self._info
        if relation.oid != mine.oid:
            if (relation.schema_name, relation.name) == (mine.schema_name, mine.name):
                raise ConnectorError(f"table {mine.shown} was dropped and made anew: {ANEW}")
            return
        when = show_lsn(self._lsn)
        found = {name: (oid, typmod) for name, oid, typmod in relation.columns}
        for column in self._columns:
            if column.name not in found:
                raise gone(mine, column.name, when)
            if found[column.name] != (column.oid, column.typmod):
                raise retyped(mine, column.name, when)
        names = [name for name, _, _ in relation.columns]
        more = sorted(set(names) - {column.name for column in self._columns})
        if more and self._every_column:
            raise widened(mine, more, when)
        if not self._upsert and relation.identity != "f":
            raise ConnectorError(
                f"table {mine.shown} has no REPLICA IDENTITY FULL any more, so that updates do not "
                f'say what they replace: set it, and start the job anew; or use changelog="upsert"'
            )
        if self._upsert and relation.identity != "f" and set(relation.key) != set(mine.key):
            raise rekeyed(mine, relation.key, mine.key, when)
        self._places = [names.index(column.name) for column in self._columns]
        self._key_places = [self._places[at] for at in self._keys]

    def _change(self, message: Insert | Update | Delete) -> None:
        begin = self._begin
        if begin is None:
            raise ConnectorError("the server sent a change outside of a transaction")
        self._count += 1
        again = self._emitted and begin.commit_lsn == self._split.within
        if again and self._count <= self._emitted:
            return
        if message.relation != self._info.oid or self._shown is True:
            return
        match message:
            case Insert(_, new):
                self._add(RowKind.INSERT, new)
            case Delete(_, old, whole):
                self._remove(RowKind.DELETE, old, whole)
            case Update(_, old, whole, new):
                self._update(old, whole, new)

    def _update(self, old: Values | None, whole: bool, new: Values) -> None:
        if old is not None and whole:
            new = [old[i] if value is UNCHANGED else value for i, value in enumerate(new)]
        if not self._upsert:
            if old is None:
                raise self._no_identity()
            self._remove(RowKind.UPDATE_BEFORE, old, whole)
            self._add(RowKind.UPDATE_AFTER, new)
        elif old is not None and any(old[at] != new[at] for at in self._key_places):
            self._remove(RowKind.DELETE, old, whole)
            self._add(RowKind.INSERT, new)
        else:
            self._add(RowKind.UPDATE_AFTER, new)

    def _remove(self, kind: RowKind, old: Values, whole: bool) -> None:
        if self._upsert:
            keys = set(self._key_places)
            old = [value if at in keys else None for at, value in enumerate(old)]
        elif not whole:
            raise self._no_identity()
        self._add(kind, old)

    def _add(self, kind: RowKind, values: Values) -> None:
        row = [values[at] for at in self._places]
        if UNCHANGED in row:
            column = self._columns[row.index(UNCHANGED)].name
            raise ConnectorError(
                f"an update of table {self._info.shown} left the large value of column '{column}' "
                "as it was, and PostgreSQL does not send it then: ALTER TABLE "
                f"{self._info.shown} REPLICA IDENTITY FULL and start the job anew, or leave the "
                "column out with columns=[...]"
            )
        if self._shown is None and self._begin is not None:
            self._doubts.append((len(self._rows), self._begin))
        self._rows.append(row)
        self._kinds.append(kind)
        self._stamps.append(self._stamp)

    def _no_identity(self) -> ConnectorError:
        return ConnectorError(
            f"a change of table {self._info.shown} does not say which row it replaces: ALTER TABLE "
            f"{self._info.shown} REPLICA IDENTITY FULL, and start the job anew"
        )

    def _resolved(self) -> tuple[Any, Any]:
        """The kinds, and which rows are not in those read already. Half of an update that is
        left over is an insert or a delete."""
        kinds = np.array(self._kinds, np.int8)
        keep = np.ones(len(kinds), bool)
        if not self._doubts:
            return kinds, keep
        keys = [self._key_of(self._rows[row]) for row, _ in self._doubts]
        places = self._place_of(keys)
        for (row, begin), place in zip(self._doubts, places, strict=True):
            seen = self._split.parts[place].seen
            keep[row] = not seen.shows(begin.xid, begin.commit_lsn)
        if not self._upsert:
            for row in np.flatnonzero(kinds == RowKind.UPDATE_BEFORE).tolist():
                if keep[row] and not keep[row + 1]:
                    kinds[row] = RowKind.DELETE
                elif keep[row + 1] and not keep[row]:
                    kinds[row + 1] = RowKind.INSERT
        return kinds, keep

    def _key_of(self, row: list[Any]) -> Key:
        return tuple(row[at].decode() for at in self._keys)


def changelog_schema(columns: Sequence[TableColumn]) -> pa.Schema:
    """Of the batches of a capture."""
    schema = pa.schema([(column.name, column.type) for column in columns])
    return schema.append(ROW_KIND_FIELD)
