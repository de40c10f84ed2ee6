"""Broadcast state: values and not objects, one writer, views that refuse, declared types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
from collections import namedtuple
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom import Row, RowKind, Types
from strom.core.errors import StateError, TypeMismatchError
from strom.state.broadcast_state import OperatorBroadcastState
from strom.state.copies import is_fixed
from strom.state.descriptors import ListStateDescriptor, MapStateDescriptor
from strom.state.operator_state import OperatorStateBackend, redistribute

RULES = MapStateDescriptor("rules")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    held: Any = None


@dataclasses.dataclass
class Loose:
    name: str


class Sub(Frozen):
    """A subclass of a frozen dataclass may have more attributes, which change."""


class Tagged(tuple):
    """Has a dict beside its elements."""


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        *(
            np.int64(3),
            np.bool_(True),
            None,
            1,
            1.5,
            "a",
            b"b",
            True,
            2j,
            Decimal("1.5"),
            dt.date(2026, 1, 1),
            Colour.RED,
            range(3),
        ),
        *((1, ("a", None)), frozenset({1}), Pair(1, "b"), re.compile("a"), int),
        *(Frozen("a"), Frozen("a", (1, 2)), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_what_cannot_change_is_handed_out_itself(value: Any) -> None:
    state = OperatorBroadcastState("rules")
    state.put("k", value)
    assert is_fixed(value)
    assert state.get("k") is value


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1], lambda v: v.append(2)),
        ({"a": 1}, lambda v: v.clear()),
        ({1}, lambda v: v.add(2)),
        (bytearray(b"a"), lambda v: v.append(1)),
        ({"a": [1]}, lambda v: v["a"].append(2)),
        ((1, [2]), lambda v: v[1].append(3)),
        (Frozen("a", [1]), lambda v: v.held.append(2)),
        (Row(a=1), lambda v: v.set_field_names(["b"])),
        (Loose("a"), lambda v: setattr(v, "name", "b")),
        (Row(a=[1]), lambda v: v[0].append(2)),
        (Row(a=1), lambda v: v.__setitem__("a", 2)),
        (Row(a=1), lambda v: v.set_row_kind(RowKind.DELETE)),
        ((1, Row(a=1)), lambda v: v[1].__setitem__("a", 2)),
        (Frozen("a", Row(a=1)), lambda v: v.held.__setitem__("a", 2)),
        ({Row(a=1): 1}, lambda v: next(iter(v)).__setitem__("a", 2)),
        (Row.of_kind(RowKind.DELETE, 1), lambda v: v.__setitem__(0, 2)),
    ],
)
def test_what_is_changed_in_place_changes_no_state(value: Any, change: Any) -> None:
    """Neither by who put it, nor by who got it, nor by who walked through all."""
    state = OperatorBroadcastState("rules")
    view = state.read_only("here")
    before = repr(value)
    state.put("k", value)
    change(value)
    assert repr(state.get("k")) == before
    for got in (state.get("k"), view["k"], *view.values(), *(v for _, v in state.items())):
        change(got)
        assert repr(got) != before
        assert repr(state.get("k")) == repr(view.get("k")) == before
    frozen = state.freeze()
    state.put("k", None)
    (again,) = [OperatorBroadcastState("rules", map(_pair, frozen()))]
    assert repr(again.get("k")) == before


def test_classes_without_a_name_are_not_copied() -> None:
    """Like those of the main program, where it runs as Ray's worker."""

    class Rule:
        def __init__(self, limits: list[int]) -> None:
            self.limits = limits

    def twice(n: int) -> int:
        return 2 * n

    state = OperatorBroadcastState("rules", [("k", {"rule": Rule([1]), "how": twice})])
    one, other = state.get("k"), state.get("k")
    assert type(one["rule"]) is Rule
    assert one["how"] is twice
    one["rule"].limits.append(2)
    assert (other["rule"].limits, state.get("k")["rule"].limits) == ([1], [1])
    again = OperatorBroadcastState("rules", map(_pair, state.freeze()()))
    assert again.get("k")["rule"].limits == [1]


def _cyclic() -> list[Any]:
    """Contains itself."""
    one: list[Any] = [1]
    one.append(one)
    return one


def _deep() -> list[Any]:
    one: list[Any] = []
    for _ in range(200):
        one = [one, {1: 2}]
    return one


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None], ("b", 1): {"c": {1, 2}}},
        [[b"a", True], [2j, frozenset({("x", -0.0)})]],
        {"a": [bytearray(b"x")]},
        {"a": [np.arange(3).tolist(), np.int32(7)]},
        [[Colour.RED, Pair(1, [2])], {"d": Decimal("1.50")}],
        [[True, 1, 1.0, "1"], [2**70]],
        _deep(),
    ],
)
def test_what_is_read_is_what_was_put_in_types_too(value: Any) -> None:
    state = OperatorBroadcastState("rules", [("k", value)])
    assert state.get("k") == value
    assert repr(state.get("k")) == repr(value)
    assert state.get("k") is not state.get("k")


def test_a_row_that_is_a_key_is_taken_as_it_is() -> None:
    key = Row(a=1)
    state = OperatorBroadcastState("rules")
    state.put(key, "one")
    state.put_all({(1, key): "two"})
    key["a"] = 2
    for got in (*state.keys(), *(key for key, _ in state.items())):
        (got[1] if len(got) == 2 else got)["a"] = 3
    assert (state.get(Row(a=1)), state.get((1, Row(a=1)))) == ("one", "two")
    assert state.keys() == [Row(a=1), (1, Row(a=1))]


def test_what_contains_itself_does_so_when_it_is_read() -> None:
    state = OperatorBroadcastState("rules", [("k", _cyclic())])
    one = state.get("k")
    assert one[1] is one


def _pair(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)


def test_types_whose_values_have_more_than_their_fields_are_not_fixed() -> None:
    sub, tagged = Sub("a"), Tagged((1,))
    object.__setattr__(sub, "more", [1])
    assert not is_fixed(sub)
    assert not is_fixed(tagged)


def test_a_value_that_cannot_be_pickled_is_refused_when_it_is_put() -> None:
    state = OperatorBroadcastState("rules")
    with pytest.raises(
        StateError, match=r"value of broadcast state 'rules': a .* cannot be pickled"
    ):
        state.put("k", [(n for n in ())])
    assert state.is_empty()


def test_a_view_reads_and_refuses_to_write() -> None:
    state = OperatorBroadcastState("rules", [("a", 1)])
    view = state.read_only("operator 'x', subtask 3")
    state["b"] = 2
    assert (view["a"], view.get("z"), "b" in view, view.contains("z")) == (1, None, True, False)
    assert (list(view), list(view.keys()), list(view.values())) == (["a", "b"], ["a", "b"], [1, 2])
    assert list(view.items()) == [("a", 1), ("b", 2)]
    assert not view.is_empty()
    writes = [
        (lambda: view.put("a", 2), r"put\('a', ...\)"),
        (lambda: view.__setitem__("a", 2), r"put\('a', ...\)"),
        (lambda: view.put_all({}), r"put_all\(...\)"),
        (lambda: view.remove("a"), r"remove\('a'\)"),
        (lambda: view.__delitem__("a"), r"remove\('a'\)"),
        (lambda: view.clear(), r"clear\(\)"),
    ]
    for write, call in writes:
        pattern = f"operator 'x', subtask 3: {call} on broadcast state 'rules', which is read-only"
        with pytest.raises(StateError, match=pattern):
            write()
    assert dict(state.items()) == {"a": 1, "b": 2}
    del state["a"]
    state.put_all({"c": 3})
    assert dict(view.items()) == {"b": 2, "c": 3}


def test_declared_types_are_looked_at() -> None:
    backend = OperatorStateBackend()
    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    rules = backend.get_broadcast_state(descriptor)
    with pytest.raises(TypeMismatchError, match="broadcast state 'rules' is declared as"):
        rules.put("a", "x")
    with pytest.raises(TypeMismatchError, match="the map key of broadcast state 'rules'"):
        rules.put_all({"a": 1, 2: 2})
    assert rules.is_empty()
    numbers = backend.get_union_list_state(ListStateDescriptor("numbers", Types.LONG()))
    for write in (numbers.add, lambda v: numbers.add_all([1, v]), lambda v: numbers.update([v])):
        with pytest.raises(TypeMismatchError, match="operator state 'numbers' is declared as"):
            write("x")
    assert list(numbers.get()) == []


@given(st.dictionaries(st.integers(), st.integers() | st.lists(st.integers())), st.integers(1, 5))
def test_one_subtask_stores_it_and_all_get_it(entries: dict[int, Any], parallelism: int) -> None:
    """Also if it is not asked for in the attempt between."""
    before = [OperatorStateBackend(subtask) for subtask in range(3)]
    for one in before:
        one.get_broadcast_state(RULES).put_all(entries)
    stored = [one.snapshot().tables() for one in before]
    assert [len(tables[0].items) for tables in stored] == [len(entries), 0, 0]
    between = [OperatorStateBackend(subtask) for subtask in range(parallelism)]
    for one, tables in zip(between, redistribute(stored, parallelism), strict=True):
        one.restore(tables)
    stored = [one.snapshot().tables() for one in between]
    assert [len(tables[0].items) for tables in stored] == [len(entries)] + [0] * (parallelism - 1)
    for tables in redistribute(stored, 2):
        after = OperatorStateBackend(1)
        after.restore(tables)
        assert dict(after.get_broadcast_state(RULES).items()) == entries


def test_a_snapshot_is_of_its_moment_and_pickles_later() -> None:
    pickled = []

    class Shown:
        def __reduce__(self) -> Any:
            pickled.append(1)
            return (dict, ())

    backend = OperatorStateBackend()
    rules = backend.get_broadcast_state(RULES)
    rules.put("a", Shown())
    assert pickled == [1]
    rules.put("b", (1, 2))
    snapshot = backend.snapshot()
    rules.put("b", 3)
    rules.remove("a")
    again = OperatorStateBackend()
    again.restore(snapshot.tables())
    assert dict(again.get_broadcast_state(RULES).items()) == {"a": {}, "b": (1, 2)}


def test_all_maps_are_read_alike() -> None:
    """Broadcast state is as long and as true as a map of keyed state."""
    state = OperatorBroadcastState("rules", [("a", 1), ("b", 2)])
    for face in (state, state.read_only("operator 'x', subtask 0")):
        assert (len(face), list(face), "a" in face, face["a"], face["c"]) == (
            2,
            ["a", "b"],
            True,
            1,
            None,
        )
        assert face
    del state["c"]
    state.clear()
    assert len(state) == 0
    assert state
