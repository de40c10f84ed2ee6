"""The row face of rolling aggregates: per-record Python over a value state.

State is read and written once per distinct key of a batch; between that the batch's keys live in
a dict, which is what makes it fast. Records are tuples and lists (position, or f0, f1, ...), `Row`s
and named tuples (position or name), dicts and dataclasses (name), or scalars (field 0 or "value").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, MutableMapping
from typing import Any

import pyarrow as pa

from ...api.specs.records import RollingSpec
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import TypeMismatchError
from ...core.failure_text import shown
from ...core.records import transposed
from ...core.row import make_row
from ...state.backend import KeyedStateBackend
from ...state.copies import own_batch
from ...state.descriptors import ValueStateDescriptor
from ..rows.turns import Parting
from ..sums import is_number, out_of_range

Held = MutableMapping[Any, Any]
"""What is stored of the keys."""

Build = Callable[[list[Any], list[Any]], list[Any]]


class RollingRows:
    """State "rolling_rows": the aggregate per key, as a 1-tuple (it may be null) for sum, min and
    max, with the key's first record behind it where the spec wants that; (field, record) for min_by
    and max_by."""

    def __init__(self, spec: RollingSpec, state: KeyedStateBackend, operator: str) -> None:
        """`operator`: its name, for messages."""
        self._spec = spec
        self._keyed = state
        descriptor = ValueStateDescriptor("rolling_rows")
        descriptor.ttl_config = None if spec.ttl is None else spec.ttl.config
        self._parting = Parting(spec.ttl, state.time, operator)
        self._state = state.get_bulk_state(descriptor)
        self._by = spec.kind.endswith("_by")
        self._largest = spec.kind.startswith("max")

    def run(self, batch: Batch) -> Batch:
        keys = self._spec.key.held_keys(batch)
        self._keyed.check_keys(keys)
        records = batch.rows()
        records = _alike(records, self._spec.field)
        read, replace = accessors(records[0], self._spec.field)
        values = read(records)
        fold = self._sum if self._spec.kind == "sum" else self._extreme
        if self._spec.of_first:
            records = list(records)  # those of the batch stay as they are
        results: list[Any] = []
        for part, times in self._parting.parts(keys, batch.timestamps):
            some, some_records = keys[part], records[part]
            held = self._state.fetch(some, times)
            if self._by:
                results += self._hold(held, some, values[part], some_records)
            else:
                results += fold(held, some, values[part], some_records)
                if self._spec.of_first:
                    records[part] = some_records
            self._state.commit()
        if not self._by:
            results = replace(records, results)
            if self._spec.scalars is not None:
                results = self._spec.scalars.fitted(results)
        return self._as_input(batch, results)

    def _as_input(self, batch: Batch, records: list[Any]) -> Batch:
        """The records in the kind of the batch they came from."""
        result = ObjectBatch(records, batch.timestamps)
        if not isinstance(batch, ColumnBatch):
            what = "records of min_by and max_by, which state holds, are copied"
            return own_batch(result, what) if self._by else result
        schema = batch.data.schema
        if self._spec.kind == "sum":
            from .columns import field_index

            schema = _sums_in(schema, field_index(self._spec.field, schema.names), records)
        return to_columns(result, schema)

    def _sum(self, held: Held, keys: list[Any], values: list[Any], records: list[Any]) -> list[Any]:
        """The sums; with `of_first` the records become their keys' first ones."""
        get, of_first = held.get, self._spec.of_first
        results: list[Any] = []
        add = results.append
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            so_far = get(key)
            if so_far is None:
                total, first = None, records[at] if of_first else None
            elif len(so_far) == 2:
                total, first = so_far
                records[at] = first
            else:
                (total,), first = so_far, None
            if value is not None:
                try:
                    total = +value if total is None else total + value
                except TypeError as error:
                    raise self._not_added(value, error) from error
            held[key] = (total,) if first is None else (total, first)
            add(total)
        return results

    def _not_added(self, value: Any, error: TypeError) -> TypeMismatchError:
        return TypeMismatchError(
            f"sum({self._spec.field!r}): the value {shown(value)}, which is a "
            f"{type(value).__name__}, cannot be added up ({error}): sum a field of numbers"
        )

    def _extreme(
        self, held: Held, keys: list[Any], values: list[Any], records: list[Any]
    ) -> list[Any]:
        """The extremes, and records as of `_sum`."""
        better = _larger if self._largest else _smaller
        results: list[Any] = []
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            so_far = held.get(key)
            best = None if so_far is None else so_far[0]
            if value is not None and (best is None or better(value, best)):
                best = value
            if so_far is not None and len(so_far) == 2:
                records[at] = so_far[1]
            held[key] = (best, records[at]) if self._spec.of_first else (best,)
            results.append(best)
        return results

    def _hold(
        self, held: Held, keys: list[Any], values: list[Any], records: list[Any]
    ) -> list[Any]:
        better = _larger if self._largest else _smaller
        results = []
        for key, value, record in zip(keys, values, records, strict=True):
            so_far = held.get(key)
            if so_far is None or (
                value is not None and (so_far[0] is None or better(value, so_far[0]))
            ):
                so_far = held[key] = (value, record)
            results.append(so_far[1])
        return results


def _larger(value: Any, than: Any) -> bool:
    return bool(value > than or (value != value and than == than))


def _smaller(value: Any, than: Any) -> bool:
    return bool(value < than or (than != than and value == value))


def _sums_in(schema: pa.Schema, at: int, records: list[Any]) -> pa.Schema:
    """The columns that hold the sums of field `at`: of its type if that is one of numbers, else
    int64. TypeMismatchError if a sum is beyond it."""
    field = schema.field(at)
    kind = field.type if is_number(field.type) else pa.int64()
    if pa.types.is_integer(kind):
        sums = [record[at] for record in records if record[at] is not None]
        try:
            pa.array([min(sums), max(sums)] if sums else [], kind)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise out_of_range(field.name, str(kind)) from error
    return schema.set(at, field.with_type(kind))


def accessors(record: Any, field: str | int) -> tuple[Callable[[list[Any]], list[Any]], Build]:
    """How to read the field of records like this one, and how to replace it by new values."""
    if isinstance(record, dict):
        return (
            lambda records: [r[field] for r in records],
            lambda records, new: [{**r, field: v} for r, v in zip(records, new, strict=True)],
        )
    if isinstance(record, (tuple, list)):
        return _positional(record, _position(record, field))
    if dataclasses.is_dataclass(record):
        name = field if isinstance(field, str) else dataclasses.fields(record)[field].name
        change = dataclasses.replace
        return (
            lambda records: [getattr(r, name) for r in records],
            lambda records, new: [
                change(r, **{name: v}) for r, v in zip(records, new, strict=True)
            ],
        )
    if field not in (0, "value"):
        raise TypeMismatchError(
            f"record {shown(record)} has no field {field!r}: aggregate records with fields, or "
            "field 0 of scalars"
        )
    return lambda records: records, lambda records, new: new


def _alike(records: list[Any], field: str | int) -> list[Any]:
    """The records; where their fields are named, with these in the first one's order if some have
    another. TypeMismatchError if one has other fields."""
    kinds = set(map(type, records))
    if len(kinds) == 1 or not isinstance(field, str):
        return records
    first = records[0]
    names = getattr(first, "_fields", None) if isinstance(first, tuple) else None
    if names is None or all(getattr(kind, "_fields", names) == names for kind in kinds):
        return records
    columns = transposed(records, tuple(names))
    return [make_row(names, values) for values in zip(*columns, strict=True)]


def _position(record: Any, field: str | int) -> int:
    names = list(getattr(record, "_fields", None) or (f"f{i}" for i in range(len(record))))
    if isinstance(field, int) and -len(record) <= field < len(record):
        return field % len(record)
    if field in names:
        return names.index(field)
    raise TypeMismatchError(f"record {shown(record)} has no field {field!r}, only {names}")


def _positional(record: Any, at: int) -> tuple[Callable[[list[Any]], list[Any]], Build]:
    kind, width, get = type(record), len(record), tuple.__getitem__

    def read(records: list[Any]) -> list[Any]:
        return [record[at] for record in records]

    def replace(records: list[Any], new: list[Any]) -> list[Any]:
        pairs = zip(records, new, strict=True)
        if kind is tuple and width == 2:
            return [(r[0], v) if at else (v, r[1]) for r, v in pairs]
        if kind is tuple:
            return [(*r[:at], v, *r[at + 1 :]) for r, v in pairs]
        if kind is list:
            return [[*r[:at], v, *r[at + 1 :]] for r, v in pairs]
        whole = slice(None)
        make = tuple.__new__
        return [make(kind, (*get(r, whole)[:at], v, *get(r, whole)[at + 1 :])) for r, v in pairs]

    return read, replace
