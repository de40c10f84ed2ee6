"""The row face of rolling aggregates: per-record Python over a value state.

State is read and written once per distinct key of a batch; between that the batch's keys live in
a dict, which is what makes it fast. Records are tuples and lists (position, or f0, f1, ...), `Row`s
and named tuples (position or name), dicts and dataclasses (name), or scalars (field 0 or "value").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.records import RollingSpec
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import TypeMismatchError
from ...state.backend import KeyedStateBackend
from ...state.descriptors import ValueStateDescriptor
from ..row_folds.numbers import INT64_MAX, INT64_MIN, overflow

Build = Callable[[list[Any], list[Any]], list[Any]]


class RollingRows:
    """State "rolling_rows": the aggregate per key, as a 1-tuple (it may be null) for sum, min and
    max; (field, record) for min_by and max_by."""

    def __init__(self, spec: RollingSpec, state: KeyedStateBackend) -> None:
        self._spec = spec
        self._state = state.get_bulk_state(ValueStateDescriptor("rolling_rows"))
        self._by = spec.kind.endswith("_by")
        self._largest = spec.kind.startswith("max")

    def run(self, batch: Batch) -> Batch:
        keys = self._spec.key.keys(batch)
        records = batch.rows()
        read, replace = accessors(records[0], self._spec.field)
        values = read(records)
        if self._by:
            held = self._hold(keys, values, records)
            return self._as_input(batch, held)
        fold = self._sum if self._spec.kind == "sum" else self._extreme
        return self._as_input(batch, replace(records, fold(keys, values)))

    def _as_input(self, batch: Batch, records: list[Any]) -> Batch:
        """The records in the kind of the batch they came from."""
        result = ObjectBatch(records, batch.timestamps)
        if not isinstance(batch, ColumnBatch):
            return result
        schema = batch.data.schema
        if self._spec.kind == "sum":
            from .columns import field_index

            at = field_index(self._spec.field, schema.names)
            schema = schema.set(at, pa.field(schema.names[at], _sum_type(schema.field(at).type)))
        return to_columns(result, schema)

    def _sum(self, keys: list[Any], values: list[Any]) -> list[Any]:
        held = self._state.fetch(keys)
        get = held.get
        results: list[Any] = []
        add = results.append
        for key, value in zip(keys, values, strict=True):
            so_far = get(key)
            total = None if so_far is None else so_far[0]
            if value is not None:
                total = +value if total is None else total + value
            held[key] = (total,)
            add(total)
        self._check_range(results)
        self._state.commit()
        return results

    def _check_range(self, sums: list[Any]) -> None:
        try:
            if min(sums) >= INT64_MIN and max(sums) <= INT64_MAX:
                return
        except TypeError:  # nulls among them, or numbers of a kind that does not compare
            pass
        for total in sums:
            if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
                raise overflow(Aggregate("sum", str(self._spec.field)))

    def _extreme(self, keys: list[Any], values: list[Any]) -> list[Any]:
        held = self._state.fetch(keys)
        better = _larger if self._largest else _smaller
        results: list[Any] = []
        for key, value in zip(keys, values, strict=True):
            so_far = held.get(key)
            best = None if so_far is None else so_far[0]
            if value is not None and (best is None or better(value, best)):
                best = value
            held[key] = (best,)
            results.append(best)
        self._state.commit()
        return results

    def _hold(self, keys: list[Any], values: list[Any], records: list[Any]) -> list[Any]:
        held = self._state.fetch(keys)
        better = _larger if self._largest else _smaller
        results = []
        for key, value, record in zip(keys, values, records, strict=True):
            so_far = held.get(key)
            if so_far is None or (
                value is not None and (so_far[0] is None or better(value, so_far[0]))
            ):
                so_far = held[key] = (value, record)
            results.append(so_far[1])
        self._state.commit()
        return results


def _larger(value: Any, than: Any) -> bool:
    return bool(value > than or (value != value and than == than))


def _smaller(value: Any, than: Any) -> bool:
    return bool(value < than or (than != than and value == value))


def _sum_type(kind: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


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
            f"record {record!r} has no field {field!r}: aggregate records with fields, or field 0 "
            "of scalars"
        )
    return lambda records: records, lambda records, new: new


def _position(record: Any, field: str | int) -> int:
    names = list(getattr(record, "_fields", None) or (f"f{i}" for i in range(len(record))))
    if isinstance(field, int) and -len(record) <= field < len(record):
        return field % len(record)
    if field in names:
        return names.index(field)
    raise TypeMismatchError(f"record {record!r} has no field {field!r}, only {names}")


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
