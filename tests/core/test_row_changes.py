"""Rows are tuples that are written in place: that nothing which is true of tuples only because they
do not change is relied upon, by the interpreter or by what holds rows."""

from __future__ import annotations

import copy
import gc
import itertools
import operator
import pickle
import sys
import threading
import weakref
from typing import Any

import pytest
from strom import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from strom.core.keys import FunctionKey, findable
from strom.core.row import row_factory
from strom.state.copies import copies_of, is_fixed
from strom.testing.operator_harness import OperatorHarness


class Node:
    """Something that can be in a cycle, and be seen to go."""

    row: Any


def made_in_bulk() -> Row:
    row: Row = row_factory(("a", "b"))([[1], [2]], 1)[0]
    return row


@pytest.mark.parametrize("make", [lambda: Row(a=1, b=2), made_in_bulk], ids=["one", "bulk"])
def test_the_collector_finds_cycles_through_rows_that_were_changed(make: Any) -> None:
    """Of a plain tuple of numbers the collector takes its eyes off for good."""
    row, plain = make(), tuple(map(int, (1, 2)))
    for _ in range(3):
        gc.collect()
    assert not gc.is_tracked(plain)
    assert gc.is_tracked(row)
    node = Node()
    node.row, row["a"] = row, node
    gone = weakref.ref(node)
    del node, row
    gc.collect()
    assert gone() is None


def given(*values: Any) -> tuple[Any, ...]:
    return values


COPIES: dict[str, Any] = {
    "tuple": tuple,
    "slice": lambda row: row[:],
    "slice method": lambda row: tuple.__getitem__(row, slice(None)),
    "sum": lambda row: operator.add(row, ()),
    "sum before": lambda row: operator.add((), row),
    "product": lambda row: row * 1,
    "display": lambda row: (*row,),
    "arguments": lambda row: given(*row),
    "list": list,
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "pickle": lambda row: pickle.loads(pickle.dumps(row)),
    "replace": lambda row: row.replace(b=2),
    "product of itertools": lambda row: next(itertools.product(*[[one] for one in row])),
    "zip": lambda row: next(zip(*[[one] for one in row], strict=True)),
    "key": lambda row: findable([row])[0],
    "key in a tuple": lambda row: findable([(row, 1)])[0][0],
    "copy for state": lambda row: copies_of(row, "row")(),
}


@pytest.mark.parametrize("name", COPIES)
def test_what_is_made_of_a_row_does_not_change_with_it(name: str) -> None:
    row = Row(a=1, b=2)
    made = COPIES[name](row)
    row["a"] = 99
    assert tuple(made) == (1, 2)
    assert tuple(row) == (99, 2)


def test_tuples_made_where_rows_were_are_whole() -> None:
    """Rows go to no free list of tuples, and leave nothing behind in what takes their place."""
    kept = []
    for number in range(2_000):
        row = Row(number, "x")
        row[1] = [number]
        del row
        kept.append((number, number))
    assert kept == [(number, number) for number in range(2_000)]


def test_hashes_follow_the_values() -> None:
    row = Row(a=1, b=2)
    before = hash(row)
    row["a"] = 3
    assert (hash(row), before) == (hash((3, 2)), hash((1, 2)))
    assert hash(row) == hash((3, 2))  # 3.14 keeps the hash
    held = {row: "x"}
    row["a"] = 1
    assert hash(row) == before
    assert row not in held  # as any key that is changed
    assert list(held) == [row]


def test_writers_on_two_threads_let_go_of_each_value_once() -> None:
    row, values = Row(a=None), [object() for _ in range(2)]
    counts = [sys.getrefcount(value) for value in values]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def write() -> None:
        for number in range(20_000):
            row[0] = values[number & 1]

    try:
        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    row[0] = None
    assert [sys.getrefcount(value) for value in values] == counts


def test_rows_are_no_values_that_cannot_change() -> None:
    assert not is_fixed(Row(a=1))
    assert not is_fixed((1, Row(a=1)))
    row = Row(a=1, b=[2])
    make = copies_of(row, "row")
    row.b.append(3)
    row["a"] = 2
    assert make() == Row(a=1, b=[2])
    assert make() is not make()


# --- rows as keys and in state -------------------------------------------------------------------


class Counting(KeyedProcessFunction):
    """Counts the records of each key, and changes each."""

    def open(self, context: RuntimeContext) -> None:
        self._count = context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        key = str(ctx.get_current_key())
        value["a"] = -1
        yield key, count


@pytest.mark.parametrize("key", [lambda row: row, lambda row: (row, 1)], ids=["row", "in a tuple"])
def test_a_record_that_is_its_own_key_may_be_changed(key: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = [Row(a=n % 2) for n in range(6)]
    counted = env.from_collection(rows).key_by(key).process(Counting())
    found = dict(counted.execute_and_collect())
    assert sorted(found.values()) == [3, 3]
    assert not any("-1" in name for name in found)
    assert FunctionKey(key).describe()


class Rules(BroadcastProcessFunction):
    """Keeps rows, and changes what it reads of them."""

    STATE = MapStateDescriptor("rules")

    def process_element(self, value: Any, ctx: Any) -> Any:
        rule = ctx.get_broadcast_state(self.STATE).get("rule")
        if rule is not None:
            yield rule.a
            rule["a"] += 1

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(self.STATE).put("rule", value)
        value["a"] = 50


def test_rows_in_broadcast_state_stay_what_they_were() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers, rules = env.from_collection([1]), env.from_collection([Row(a=7)])
    stream = numbers.connect(rules.broadcast(Rules.STATE)).process(Rules())
    harness = OperatorHarness.of(stream)
    harness.push([Row(a=7)], port=1)
    harness.push([1, 2, 3])
    assert harness.outputs() == [7, 7, 7]
