"""Tables whose keys are Python objects, of which rows lie in RocksDB, against a dict: equal keys
are one key wherever they are, and keys that no bytes tell stay in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from backends import close_all, make_backend
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.key_kinds import held_key, held_keys
from strom.core.keys import findable
from strom.state import object_keys
from strom.state.backend import KEY_GROUP, AccColumn, StateTable
from strom.state.key_groups import key_group, range_for
from strom.state.object_keys import ObjectKeys
from strom.state.rocks.tables import table_state
from strom.state.rocks.tables.table_state import ColdTableState
from strom.state.value_store import ValueStore

GROUPS = 8
COLUMNS = [AccColumn("n", "int64"), AccColumn("text", "int64", -1)]
VALUES = {"text": lambda: ValueStore(pa.string())}


@dataclass(frozen=True)
class Own:
    """A key that has no bytes."""

    number: int


class Colour(StrEnum):
    RED = "red"


SOME: list[Any] = [0, 1, True, 1.0, -0.0, "a", "", None, b"a", 2**70, (1, "x"), (True, "x")]
SOME += [Decimal("1.5"), Decimal("1.50"), dt.date(2020, 1, 1), float("nan"), Own(1), Own(2)]
SOME += [Colour.RED, "red", ("a", Own(1)), np.int64(1)]


@pytest.fixture(scope="module", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(autouse=True)
def _few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes are forgotten, and given to other keys, as soon as can be."""
    monkeypatch.setattr(object_keys, "FIRST_LIMIT", 2)


class Part:
    """One subtask."""

    def __init__(self, subtask: int, parallelism: int, kind: str, tables: list[StateTable]) -> None:
        self.backend: Any = make_backend(kind, range_for(subtask, parallelism, GROUPS), GROUPS)
        groups = self.backend.key_groups
        self.backend.restore([cut(table, groups) for table in tables])
        self.keys = self.backend.object_keys("operator 'o'")
        self.schema = pa.schema([pa.field("k", self.keys.kind)])
        self.state = self.backend.table("t", self.schema, COLUMNS, values=VALUES, cold=True)
        self.table = self.state.table()

    def coded(self, keys: list[Any]) -> pa.RecordBatch:
        self.backend.forget_object_keys()
        column = self.keys.column(held_keys(findable(keys)))
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def mine(self, keys: list[Any]) -> list[Any]:
        return [key for key in keys if key_group(key, GROUPS) in self.backend.key_groups]

    def contents(self) -> dict[Any, Any]:
        shown = self.keys.objects(self.table.keys().column(0))
        numbers = self.table.column("n")[: len(self.table)].tolist()
        codes = self.table.column("text")[: len(self.table)]
        texts = self.table.stores["text"].take(codes).to_pylist()
        lines = zip(findable(shown), numbers, texts, strict=True)
        return {held_key(key): (n, text) for key, n, text in lines if n}


def cut(table: StateTable, groups: Any) -> StateTable:
    column = table.data.column(KEY_GROUP).to_numpy()
    assert (np.diff(column) >= 0).all()
    mask = pa.array((column >= groups.first) & (column <= groups.last))
    return StateTable(table.name, table.kind, table.data.filter(mask), table.metadata)


KEYS = st.lists(st.sampled_from(range(len(SOME))), max_size=5)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["add", "add", "find", "release"]), KEYS),
    st.tuples(st.sampled_from(["evict", "evict", "all", "tidy"]), st.none()),
    st.tuples(st.just("restore"), st.tuples(st.integers(1, 3), st.booleans())),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_against_a_dict(steps: list[Any]) -> None:
    held: dict[Any, tuple[int, str]] = {}
    parts = [Part(0, 1, "rocksdb", [])]
    for number, (what, given_) in enumerate(steps):
        keys = findable([SOME[at] for at in given_]) if isinstance(given_, list) else []
        match what:
            case "add":
                for part in parts:
                    mine = part.mine(keys)
                    slots = part.table.slots(part.coded(mine))
                    np.add.at(part.table.column("n"), slots, 1)
                    texts = pa.array([f"{number}-{key!r}" for key in mine], pa.large_string())
                    part.table.column("text")[slots] = part.table.stores["text"].append(texts)
                for key in keys:
                    n, _ = held.get(held_key(key), (0, ""))
                    held[held_key(key)] = (n + 1, f"{number}-{key!r}")
            case "find":
                for part in parts:
                    mine = part.mine(keys)
                    slots = part.table.find(part.coded(mine))
                    numbers = part.table.column("n")
                    found = [int(numbers[slot]) if slot >= 0 else 0 for slot in slots]
                    assert found == [held.get(held_key(key), (0, ""))[0] for key in mine]
            case "release":
                for part in parts:
                    slots = np.unique(part.table.find(part.coded(part.mine(keys))))
                    part.table.release(slots[slots >= 0])
                for key in keys:
                    held.pop(held_key(key), None)
            case "evict":
                for part in parts:
                    part.backend.time.begin(1)
            case "tidy":
                for part in parts:
                    part.table.tidy()
            case "all":
                for part in parts:
                    part.contents()
            case "restore":
                parallelism, memory = given_
                tables = [t for part in parts for t in part.backend.snapshot().tables()]
                kind = "memory" if memory else "rocksdb"
                parts = [Part(at, parallelism, kind, tables) for at in range(parallelism)]
    found = [part.contents() for part in parts]
    assert {key: shown for some in found for key, shown in some.items()} == held
    assert sum(map(len, found)) == len(held)
    for part in parts:
        part.table.validate()


def test_only_keys_that_have_bytes_leave() -> None:
    part = Part(0, 1, "rocksdb", [])
    assert isinstance(part.state, ColdTableState)
    keys = [*range(100), *(Own(number) for number in range(50))]
    slots = part.table.slots(part.coded(keys))
    part.table.column("n")[slots] = 1
    for _ in range(3):
        part.backend.time.begin(1)
        assert (part.table.live, part.state.spilled) == (50, 100)
    assert part.backend.snapshot().tables() is not None
    assert len(part.contents()) == 150


def test_a_restore_learns_no_more_keys_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys that leave at once no code is left but one of each type, and of those that no bytes
    tell."""
    monkeypatch.setattr(table_state, "RESTORED", 100)
    first = Part(0, 1, "memory", [])
    keys = [*range(3000), *(("a", number) for number in range(2000)), *map(Own, range(7))]
    slots = first.table.slots(first.coded(keys))
    first.table.column("n")[slots] = np.arange(len(keys)) + 1
    texts = pa.array([f"{key!r}" for key in keys], pa.large_string())
    first.table.column("text")[slots] = first.table.stores["text"].append(texts)
    want = first.contents()
    tables = list(first.backend.snapshot().tables())
    known: list[int] = []
    restored = ObjectKeys.restored

    def watched(self: ObjectKeys, column: pa.ChunkedArray, state: str) -> pa.Array:
        known.append(len(self))
        return restored(self, column, state)

    monkeypatch.setattr(ObjectKeys, "restored", watched)
    part = Part(0, 1, "rocksdb", tables)
    assert len(part.keys) <= 7 + 3 * 60
    assert max(known) <= 7 + 3 * 60
    assert part.state.spilled == 5000
    assert part.table.live == 7
    part.backend.forget_object_keys()
    assert len(part.keys) == 7
    monkeypatch.setattr(ObjectKeys, "restored", restored)
    assert part.contents() == want
    part.table.validate()
