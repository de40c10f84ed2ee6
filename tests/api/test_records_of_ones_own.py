"""What one reader of a record does to it no other reader sees, nor who keeps it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from strom import (
    DataStream,
    JobConfig,
    JobFailedError,
    OutputTag,
    ProcessFunction,
    Row,
    StreamExecutionEnvironment,
    Types,
)
from strom.state.copies import own_values


class Box:
    """A user's object."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return f"Box({self.held!r})"


def change_box(box: Box) -> Box:
    box.held = "changed"
    return box


def change_row(row: Row) -> Row:
    row["a"] = "changed"
    return row


def append(values: list[Any]) -> list[Any]:
    values.append("changed")
    return values


def put(values: dict[Any, Any]) -> dict[Any, Any]:
    values["changed"] = 1
    return values


def add(values: set[Any]) -> set[Any]:
    values.clear()
    return values


def append_within(values: tuple[Any, ...]) -> tuple[Any, ...]:
    values[1].append("changed")
    return values


RECORDS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "list": (lambda n: [n], append),
    "list of lists": (lambda n: [[n]], append),
    "dict": (lambda n: {"n": n}, put),
    "set": (lambda n: {n}, add),
    "object": (Box, change_box),
    "row": (lambda n: Row(a=n), change_row),
    "row of lists": (lambda n: Row(n, [n]), append_within),
    "tuple of lists": (lambda n: (n, [n]), append_within),
    "several kinds": (lambda n: (n, [n]) if n else (None, []), append_within),
}


class Aside(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield OutputTag("side"), value


Forks = Callable[[DataStream], tuple[DataStream, DataStream]]

FORKS: dict[str, Forks] = {
    "chained": lambda s: (s, s),
    "first elsewhere": lambda s: (s.rebalance(), s),
    "second elsewhere": lambda s: (s, s.rebalance()),
    "both elsewhere": lambda s: (s.rebalance(), s.rebalance()),
}


def seen(env: StreamExecutionEnvironment, records: str, fork: Forks, side: bool = False) -> Any:
    """What a reader is given beside one that changes everything; of both in either order."""
    make, change = RECORDS[records]
    stream = env.from_collection(range(3)).map(make)
    if side:
        stream = stream.process(Aside()).get_side_output(OutputTag("side"))
    found = []
    for first in (True, False):
        one, other = fork(stream) if first else reversed(fork(stream))
        changed = one.map(change).map(lambda value: ("changed", repr(value)))
        same = other.map(lambda value: ("same", repr(value)))
        both = changed.union(same) if first else same.union(changed)
        found.append(sorted(text for kind, text in both.execute_and_collect() if kind == "same"))
    return found


@pytest.mark.parametrize("side", [False, True], ids=["main", "side"])
@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("records", RECORDS)
def test_a_change_is_not_seen_by_another_reader(records: str, fork: str, side: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    expected = sorted(repr(RECORDS[records][0](n)) for n in range(3))
    assert seen(env, records, FORKS[fork], side) == [expected, expected]


def test_rows_of_columns_are_each_readers_own() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    info = Types.ROW_NAMED(["a"], [Types.STRING()])
    for fork in FORKS.values():
        one, other = fork(env.from_collection([("x",)]).map(lambda row: row, output_type=info))
        both = one.map(change_row).union(other.map(lambda row: row))
        assert sorted(both.execute_and_collect()) == [("changed",), ("x",)]


@pytest.mark.parametrize("records", RECORDS)
def test_each_subtask_changes_what_was_broadcast_for_itself(records: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    make, change = RECORDS[records]
    stream = env.from_collection([1]).map(make).broadcast()
    changed = stream.map(lambda value: (repr(value), change(value))[0]).set_parallelism(3)
    assert list(changed.execute_and_collect()) == [repr(make(1))] * 3


def test_object_reuse_gives_all_readers_one_object() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_config().enable_object_reuse()
    one, _ = seen(env, "list", FORKS["chained"])
    assert one == ["[0, 'changed']", "[1, 'changed']", "[2, 'changed']"]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, None, "a", True, b"b"],
        [("a", 1), ("b", None)],
        [("a", ("b", 1))],
        [frozenset({1})],
        [],
    ],
)
def test_what_cannot_change_is_not_copied(values: list[Any]) -> None:
    assert own_values(values, "records") is values


def test_what_cannot_be_copied_is_an_error_that_says_what_to_do() -> None:
    def forked(env: StreamExecutionEnvironment) -> DataStream:
        locks = env.from_collection([1]).map(lambda n: [threading.Lock()]).name("Locks")
        return locks.map(str).union(locks.map(str))

    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(JobFailedError, match=r"'Locks', subtask 0: .*enable_object_reuse.*pickle"):
        list(forked(env).execute_and_collect())
    env.get_config().enable_object_reuse()
    assert len(list(forked(env).execute_and_collect())) == 2


def test_a_collection_stays_as_it_is() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    values = [[1], [2]]
    assert list(env.from_collection(values).map(append).execute_and_collect())
    assert values == [[1], [2]]


KEPT: dict[str, Callable[[Any], DataStream]] = {
    "reduce": lambda keyed: keyed.reduce(lambda a, b: Row(a=a.a + b.a)),
    "max_by": lambda keyed: keyed.max_by("a"),
}


@pytest.mark.parametrize("name", KEPT)
def test_operators_keep_what_they_keep(name: str) -> None:
    """A record a batch, so that each finds what the one before left in state."""

    def change(row: Row) -> str:
        text = repr(row)
        row["a"] = 1000
        return text

    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(batch_size=1))
    keyed = env.from_collection([Row(a=3), Row(a=1), Row(a=1)]).key_by(lambda row: 0)
    found = list(KEPT[name](keyed).map(change).execute_and_collect())
    expected = [3, 4, 5] if name == "reduce" else [3, 3, 3]
    assert found == [f"Row(a={n})" for n in expected]


def test_tuples_that_hold_lists_are_kept_as_they_were() -> None:
    def change(pair: tuple[str, list[int]]) -> str:
        text = repr(pair)
        pair[1].append(1000)
        return text

    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(batch_size=1))
    keyed = env.from_collection([("a", [1]), ("a", [2])]).key_by(lambda pair: pair[0])
    found = keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).map(change)
    assert list(found.execute_and_collect()) == ["('a', [1])", "('a', [1, 2])"]
