"""Entries as operators may declare them: numbers alone or with values, of keys that are columns or
Python objects."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from strom.core.key_kinds import held_keys
from strom.core.keys import findable
from strom.state.backend import AccColumn
from strom.state.value_lists import ValueLists
from strom.state.value_store import ValueStore

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
COLUMNS = (
    AccColumn("words", "V32", None, ("owner", None, "due", "n")),
    AccColumn("x", "float64", 0.5),
    AccColumn("small", "int16", -1),
)
KEYS = [(n if n % 7 else None, "t" * (n % 3) if n % 5 else None) for n in range(1, 90)]

_NANS = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64).tolist()
NAN = _NANS[0]
TYPED = pa.schema(
    [("x", pa.float32()), ("at", pa.timestamp("us", "UTC")), ("d", pa.list_(pa.decimal128(5, 2)))]
)
"""Keys that only their types tell: some are equal, of other bits."""

TYPED_KEYS = [
    (x, dt.datetime(2020, 1, day, tzinfo=dt.UTC) if day else None, amounts)
    for x in (0.0, -0.0, 1.5, *_NANS, None)
    for day in (0, 1, 2)
    for amounts in (None, (), (Decimal("1.5"), None), (Decimal("1.50"),), (Decimal("0"),))
]

CODED = (AccColumn("text", "int64", -1), AccColumn("list", "int64", -1))
VALUES: dict[str, Any] = {
    "text": lambda: ValueStore(pa.string()),
    "list": lambda: ValueLists(pa.int32()),
}


@dataclass(frozen=True)
class Own:
    """A key that has no bytes, and stays in memory."""

    number: int


def no_reduce(self: Any) -> Any:
    raise TypeError("no pickles of this")


class Sealed(str):
    """A key that has bytes, and no pickle."""

    __slots__ = ()
    __reduce_ex__ = no_reduce


OBJECTS: list[Any] = [1, 1.0, True, None, 0.0, -0.0, float("nan"), 2**70, b"y", ("a", float("nan"))]
OBJECTS += [Decimal("1.5"), Decimal("1.50"), dt.date(2020, 1, 1), np.int64(5), 5, ("x", Own(3))]
OBJECTS += [f"user {n}" for n in range(30)] + [(n % 5, "t" * n) for n in range(30)]
OBJECTS += [Own(n) for n in range(6)]

FORMS = ("columns", "valued", "objects", "valued objects", "typed", "valued typed")

Held = dict[Any, list[tuple[int, int]]]
"""Key -> (due, n) of its entries, ascending."""


def due(entries: Any) -> Any:
    return entries["due"]


def copied(held: Held) -> Held:
    return {key: list(entries) for key, entries in held.items()}


def text_of(n: int) -> str | None:
    return None if n % 5 == 0 else str(n) * (n % 4)


def list_of(n: int) -> list[int | None]:
    return [*range(n % 7)]


class Table:
    """The entries of a backend, as one form has them."""

    def __init__(self, backend: Any, form: str) -> None:
        self.objects = backend.object_keys("operator 'op'") if "objects" in form else None
        self.schema = TYPED if "typed" in form else SCHEMA
        if self.objects is not None:
            self.schema = pa.schema([pa.field("k", self.objects.kind)])
        self.valued = "valued" in form
        columns, values = (COLUMNS + CODED, VALUES) if self.valued else (COLUMNS, None)
        self.entries: Any = backend.entries("e", self.schema, columns, "owner", values, due)

    def batch_of(self, keys: list[Any]) -> pa.RecordBatch:
        if self.objects is None:
            return batch_of(keys, self.schema)
        column = self.objects.column(held_keys(findable(keys)))
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def keys_of(self, slots: Any) -> list[Any]:
        columns = self.entries.take_keys(slots)
        if self.objects is None:
            return [*map(plain, zip(*[c.to_pylist() for c in columns], strict=True))]
        return held_keys(self.objects.objects(columns[0]))

    def words(self) -> Any:
        return self.entries.column("words").view(np.int64).reshape(-1, 4)

    def fill(self, slot: int, words: tuple[int, int, int, int]) -> None:
        """An entry like no other."""
        n = words[-1]
        self.words()[slot] = words
        self.entries.column("x")[slot] = n / 2
        self.entries.column("small")[slot] = n % 100
        if self.valued:
            text, lists = (self.entries.stores[name] for name in VALUES)
            codes = text.append(pa.array([text_of(n)], pa.string()))
            self.entries.column("text")[slot] = codes[0] if n % 3 else -1
            last, items = self.entries.column("list"), pa.array(list_of(n), pa.int32())
            last[slot] = -1
            lists.extend(last, np.full(len(items), slot), items, np.arange(len(items)) + n)

    def here(self) -> Held:
        found: Held = {}
        slots = np.flatnonzero(self.words()[: len(self.entries), 0] >= 0)
        stores = self.entries.stores
        shown: dict[str, list[Any]] = {
            name: store.stored(self.entries.column(name)[slots]).to_pylist()
            for name, store in stores.items()
        }
        for row, (key, slot) in enumerate(zip(self.keys_of(slots), slots.tolist(), strict=True)):
            _, _, at, n = self.words()[slot].tolist()
            assert self.entries.column("x")[slot] == n / 2
            assert self.entries.column("small")[slot] == n % 100
            if self.valued:
                assert shown["text"][row] == (text_of(n) if n % 3 else None)
                items = [{"value": m, "number": m + n} for m in list_of(n)]
                assert (shown["list"][row] or []) == items
            found.setdefault(key, []).append((at, n))
        return {key: sorted(entries) for key, entries in found.items()}


def batch_of(keys: list[Any], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = list(zip(*keys, strict=True)) if keys else [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key that a dict finds: lists as tuples, and all NaN as one."""
    parts = [NAN if part != part else part for part in key]
    return tuple([tuple(part) if isinstance(part, list) else part for part in parts])


def keys_of(form: str) -> list[Any]:
    """The keys of a form."""
    if "objects" in form:
        return OBJECTS
    return [*map(plain, TYPED_KEYS)] if "typed" in form else KEYS
