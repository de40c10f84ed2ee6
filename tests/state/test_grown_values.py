"""Lists and sets of values that only grow: what slices keep under codes, against plain models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.state.value_rows import ValueRows, in_order
from strom.state.value_sets import ValueSets
from strom.testing.fuzz.limits import small_limits

VALUES = st.sampled_from(["", "a", "bb", "ccc"])
BATCH = st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=8)
BATCHES = st.lists(BATCH, max_size=6)


def columns(batch: list[tuple[int, str]]) -> tuple[Any, pa.Array]:
    slots = np.array([slot for slot, _ in batch], dtype=np.int64)
    return slots, pa.array([value for _, value in batch], pa.string())


class Lists:
    """Lists of four slots, and what they should hold."""

    def __init__(self, best: int | None = None) -> None:
        self.store = ValueRows(pa.string(), None if best is None else self._choose)
        self.best = best
        self.codes = np.full(4, -1, dtype=np.int64)
        self.model: list[list[str]] = [[], [], [], []]
        self.number = 0

    def _choose(self, owners: Any, values: pa.Array, numbers: Any) -> Any:
        """The last `best` of each list."""
        kept: list[int] = []
        for owner in set(owners.tolist()):
            rows = np.flatnonzero(owners == owner)
            kept += rows[np.argsort(numbers[rows])][-(self.best or 0) :].tolist()
        return np.array(sorted(kept), dtype=np.int64)

    def extend(self, batch: list[tuple[int, str]]) -> None:
        slots, values = columns(batch)
        numbers = self.number + np.arange(len(batch))
        self.number += len(batch)
        self.store.extend(self.codes, slots, values, numbers)
        for slot, value in batch:
            self.model[slot].append(value)
        if self.store.crowded:
            self.store.compact(self.codes)

    def held(self) -> list[list[str]]:
        owners, values, numbers = self.store.read(self.codes)
        found: list[list[str]] = [[], [], [], []]
        for owner, value in zip(owners.tolist(), values.to_pylist(), strict=True):
            found[owner].append(value)
        assert all((np.diff(numbers[owners == o]) > 0).all() for o in range(4))
        return [some[-self.best :] if self.best else some for some in found]

    def wanted(self) -> list[list[str]]:
        return [some[-self.best :] if self.best else list(some) for some in self.model]


@pytest.mark.parametrize("best", [None, 1, 2])
@settings(max_examples=examples(60), deadline=None)
@given(before=BATCHES, after=BATCHES)
def test_lists_grow_thin_out_and_come_back(best: int | None, before: Any, after: Any) -> None:
    """What is frozen stays as it was while the lists grow and are thinned out."""
    with small_limits():
        lists, other = Lists(best), Lists(best)
        for batch in before:
            lists.extend(batch)
        frozen, codes, wanted = lists.store.freeze(), lists.codes.copy(), lists.wanted()
        for batch in after:
            lists.extend(batch)
        assert lists.held() == lists.wanted()
        other.codes = other.store.append(frozen(codes))
        other.model, other.number = wanted, 10_000
        assert other.held() == wanted
        for batch in after:
            other.extend(batch)
        assert other.held() == lists.held()


@settings(max_examples=examples(100), deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 2**33), st.integers(0, 5)), min_size=1))
def test_rows_in_order(rows: list[tuple[int, int]]) -> None:
    owners, numbers = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    assert in_order(owners, numbers).tolist() == np.lexsort((numbers, owners)).tolist()


class Sets:
    """Sets of four slots, and what they should hold."""

    def __init__(self) -> None:
        self.store = ValueSets(pa.string())
        self.codes = self.store.make(4)
        self.model: list[set[str]] = [set(), set(), set(), set()]

    def add(self, batch: list[tuple[int, str]]) -> None:
        slots, values = columns(batch)
        self.store.add(self.codes[slots], values)
        for slot, value in batch:
            self.model[slot].add(value)

    def check(self) -> None:
        assert self.store.sizes(self.codes).tolist() == [len(some) for some in self.model]
        assert self.store.sizes(np.array([-1])).tolist() == [0]


@settings(max_examples=examples(100), deadline=None)
@given(before=BATCHES, after=BATCHES, others=BATCHES)
def test_sets_grow_unite_and_come_back(before: Any, after: Any, others: Any) -> None:
    """A set takes in another store's, which stays as it is; so does what is frozen."""
    sets, other, restored = Sets(), Sets(), Sets()
    for batch in before:
        sets.add(batch)
    frozen, model = sets.store.freeze(), [set(some) for some in sets.model]
    for batch in others:
        other.add(batch)
    sets.store.unite(np.array([-1, 0, 0, 3]), other.store)
    for into, some in zip((None, 0, 0, 3), other.model, strict=True):
        if into is not None:
            sets.model[into] |= some
    for batch in after:
        sets.add(batch)
    sets.check()
    other.check()
    stored = frozen(np.array([2, -1, 0, 1]))
    assert [None if s is None else set(s) for s in stored.to_pylist()] == [
        model[2],
        None,
        model[0],
        model[1],
    ]
    restored.codes = restored.store.append(frozen(sets.codes))
    restored.model = model
    restored.check()
    for batch in after:
        restored.add(batch)
    restored.check()


def test_lists_that_are_not_asked_for_are_not_read() -> None:
    """However many are asked for, those that are not there among them."""
    store = ValueRows(pa.int64())
    lists = np.array([-1, -1])
    store.extend(lists, np.array([0, 1, 1]), pa.array([5, 6, 7]), np.arange(3))
    for asked, owners, values in (
        ([-1], [], []),
        ([-1, -1, -1], [], []),
        ([-1, 0, -1], [1], [5]),
        ([1, -1], [0, 0], [6, 7]),
        ([1, 0], [1, 0, 0], [5, 6, 7]),
    ):
        found, read, _ = store.unordered(np.array(asked))
        assert found.tolist() == owners
        assert read.to_pylist() == values
