"""What operators with a table per key share: binding to the first batch's columns, row kinds.

Types are known with the first record, so an operator binds then; the layout it bound to is stored
with the state, from which a restored operator binds again. It says whether the input is a
changelog: the first batch decides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...core.arrays import Bools, Int8s, Int64s
from ...core.batch import Batch, ColumnBatch, to_columns
from ...core.errors import GraphError, TypeMismatchError
from ...core.keys import ColumnKey, KeySelector
from ...core.preload import preload
from ...core.row_kind import ROW_KIND, retracts, split_kinds, with_kinds
from ...state.backend import COLUMN_STATE
from ...state.window_progress import WindowProgress
from ..base import Operator, Work
from ..columns import fit_columns, fit_keys
from .grown import take_rows


@dataclass(frozen=True)
class Records:
    """One batch: key columns and columns of the types bound to. `stamps`: event times, None when
    the stream has none. `retracted`: which records take one away, None for none."""

    keys: pa.RecordBatch
    data: pa.RecordBatch
    stamps: Int64s | None
    retracted: Bools | None

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def slice(self, start: int, count: int) -> Records:
        stop = start + count
        return Records(
            self.keys.slice(start, count),
            self.data.slice(start, count),
            None if self.stamps is None else self.stamps[start:stop],
            None if self.retracted is None else self.retracted[start:stop],
        )

    def take(self, rows: Int64s) -> Records:
        """These records, in this order."""
        return Records(
            take_rows(self.keys, rows),
            take_rows(self.data, rows),
            None if self.stamps is None else self.stamps[rows],
            None if self.retracted is None else self.retracted[rows],
        )

    def parts(self, size: int) -> Iterator[Records]:
        """The records in parts of at most `size`."""
        if len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self.slice(start, min(size, len(self) - start))


@dataclass(frozen=True)
class Layout:
    """What an operator is bound to. `named`: the keys are columns, under their own names."""

    keys: pa.Schema
    columns: pa.Schema
    stamped: bool
    changelog: bool
    named: bool

    def to_schema(self) -> pa.Schema:
        flags = {
            "keys": len(self.keys),
            "stamped": self.stamped,
            "changelog": self.changelog,
            "named": self.named,
        }
        metadata = {name: str(int(value)) for name, value in flags.items()}
        return pa.schema([*self.keys, *self.columns], metadata=metadata)

    @staticmethod
    def of(schema: pa.Schema) -> Layout:
        count, stamped, changelog, named = (
            int(schema.metadata[name]) for name in (b"keys", b"stamped", b"changelog", b"named")
        )
        fields = list(schema)
        keys, columns = pa.schema(fields[:count]), pa.schema(fields[count:])
        return Layout(keys, columns, bool(stamped), bool(changelog), bool(named))


class TableOperator(Operator):
    """Subclasses: `bind` asks `ctx.keyed_state` for state, which holds what was restored, and makes
    from it what is not stored; `update` works a batch in."""

    kernels: Sequence[str] = ()
    """Modules to load while opening."""

    def __init__(self, key: KeySelector) -> None:
        self._key = key
        self._layout: Layout | None = None

    def open(self) -> None:
        preload(*COLUMN_STATE, *self.kernels)
        self._progress = WindowProgress(self.ctx.keyed_state, "layout")
        if self._progress.layout is not None:
            self._layout = Layout.of(self._progress.layout)
            self.bind(self._layout)

    def process(self, batch: Batch, port: int = 0) -> Work:
        columns = to_columns(batch)
        data, kinds = split_kinds(columns.data)
        keys = self._key.key_columns(ColumnBatch(data, columns.timestamps))
        assert keys is not None
        layout = self._layout
        if layout is None:
            layout = self._bound_to(
                Layout(
                    bare(keys.schema),
                    bare(data.schema),
                    stamped=columns.timestamps is not None,
                    changelog=kinds is not None,
                    named=isinstance(self._key, ColumnKey),
                )
            )
        return self.update(self._records(layout, data, kinds, keys, columns.timestamps))

    def _bound_to(self, layout: Layout) -> Layout:
        """What the operator is bound to: to this, if to nothing yet."""
        if self._layout is None:
            self.bind(layout)
            self._layout = layout
            self._progress.layout = layout.to_schema()
        return self._layout

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()

    @abstractmethod
    def bind(self, layout: Layout) -> None:
        """Once, before records flow."""

    @abstractmethod
    def update(self, records: Records) -> Work: ...

    def emit(self, data: pa.RecordBatch, kinds: Int8s | None, stamps: Int64s | None) -> None:
        """Send a batch with its row kinds, if it is a changelog."""
        if data.num_rows:
            rows = data if kinds is None else with_kinds(data, kinds)
            self.out.emit(ColumnBatch(rows, stamps))

    def _records(
        self,
        layout: Layout,
        data: pa.RecordBatch,
        kinds: Int8s | None,
        keys: pa.RecordBatch,
        stamps: Int64s | None,
    ) -> Records:
        self._check(layout, data.schema, stamps is not None)
        if kinds is not None and not layout.changelog:
            raise TypeMismatchError(
                f"operator '{self.ctx.name}': its first records had no column {ROW_KIND}, these "
                "have: all streams united before it must be changelogs, or none"
            )
        return Records(
            fit_keys(keys, layout.keys),
            fit_columns(data, layout.columns),
            stamps if layout.stamped else None,
            None if kinds is None else retracts(kinds),
        )

    def _check(self, layout: Layout, columns: pa.Schema, stamped: bool) -> None:
        """TypeMismatchError unless records may have such columns, and event times or none."""
        if columns.names != layout.columns.names:
            raise TypeMismatchError(
                f"operator '{self.ctx.name}': records have columns {columns.names} now and had "
                f"{layout.columns.names} before"
            )
        if layout.stamped and not stamped:
            raise TypeMismatchError(
                f"operator '{self.ctx.name}': its first records had event times, these have none"
            )


def bare(schema: pa.Schema) -> pa.Schema:
    """Names and types alone: nullability and metadata may differ from batch to batch."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def require_distinct(operator: str, names: Sequence[str]) -> None:
    """GraphError if an operator's output would have a column twice."""
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise GraphError(
            f"operator '{operator}' would emit several columns named {twice}: rename them upstream,"
            " or the operator's own"
        )
