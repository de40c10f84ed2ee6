"""Operator state: lists, broadcast maps, deferred items and redistribution."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.core.errors import StateError
from strom.state.backend import OperatorStateTable
from strom.state.descriptors import ListStateDescriptor, MapStateDescriptor
from strom.state.operator_state import OperatorStateBackend, redistribute

SPLITS = ListStateDescriptor("splits")
RULES = MapStateDescriptor("rules")


def restored(*tables: OperatorStateTable) -> OperatorStateBackend:
    backend = OperatorStateBackend()
    backend.restore(tables)
    return backend


def contents(tables: list[OperatorStateTable]) -> list[int]:
    return list(restored(*tables).get_list_state(SPLITS).get())


def test_list_state_round_trip() -> None:
    backend = OperatorStateBackend()
    state = backend.get_list_state(SPLITS)
    state.add(1)
    state.add_all([2, {"a": 3}])
    assert backend.get_list_state(SPLITS) is state
    tables = backend.snapshot().tables()
    assert [(t.name, t.mode, len(t.items)) for t in tables] == [("splits", "split", 3)]
    again = restored(*tables).get_list_state(SPLITS)
    assert list(again.get()) == [1, 2, {"a": 3}]
    again.update([9])
    assert list(again.get()) == [9]
    again.clear()
    assert list(again.get()) == []


def test_broadcast_state_is_a_map() -> None:
    backend = OperatorStateBackend()
    rules = backend.get_broadcast_state(RULES)
    assert rules.is_empty()
    rules.put("a", 1)
    rules.put_all({"b": 2, "c": 3})
    rules.remove("c")
    assert (rules.get("a"), rules.get("z"), rules.contains("b")) == (1, None, True)
    again = restored(*backend.snapshot().tables()).get_broadcast_state(RULES)
    assert list(again.items()) == [("a", 1), ("b", 2)]
    assert (list(again.keys()), list(again.values())) == (["a", "b"], [1, 2])
    again.clear()
    assert again.is_empty()


def test_changes_after_the_snapshot_do_not_show() -> None:
    backend = OperatorStateBackend()
    item = [1]
    backend.get_list_state(SPLITS).add(item)
    snapshot = backend.snapshot()
    item.append(2)
    backend.get_list_state(SPLITS).add("late")
    assert contents(snapshot.tables()) == [[1]]


def test_deferred_items_are_made_once_and_belong_to_one_snapshot() -> None:
    calls = []

    def commit() -> list[str]:
        calls.append(1)
        return ["c1", "c2"]

    backend = OperatorStateBackend()
    state = backend.get_list_state(SPLITS)
    state.add("kept")
    backend.set_deferred("splits", commit)
    snapshot, following = backend.snapshot(), backend.snapshot()
    assert calls == []
    assert contents(snapshot.tables()) == contents(snapshot.tables()) == ["kept", "c1", "c2"]
    assert contents(following.tables()) == ["kept"]
    assert list(state.get()) == ["kept"]
    assert calls == [1]


def test_a_failed_deferred_function_is_not_run_again() -> None:
    calls = []

    def fail() -> list[str]:
        calls.append(1)
        raise OSError("disk full")

    backend = OperatorStateBackend()
    backend.get_list_state(SPLITS)
    backend.set_deferred("splits", fail)
    snapshot = backend.snapshot()
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            snapshot.tables()
    assert calls == [1]


def test_deferring_to_an_unknown_list_is_an_error() -> None:
    with pytest.raises(StateError, match="'splits' is not a list in use"):
        OperatorStateBackend().set_deferred("splits", list)


def test_mode_mismatch_names_both() -> None:
    backend = OperatorStateBackend()
    backend.get_list_state(SPLITS)
    with pytest.raises(StateError, match="'split' and is asked for as 'union'"):
        backend.get_union_list_state(SPLITS)
    with pytest.raises(StateError, match="'split' and is asked for as 'broadcast'"):
        restored(*backend.snapshot().tables()).get_broadcast_state(MapStateDescriptor("splits"))


def test_state_never_asked_for_is_carried_along_unread() -> None:
    unreadable = OperatorStateTable("old", "union", (b"not a pickle",))
    backend = restored(unreadable)
    backend.get_list_state(SPLITS).add(1)
    assert unreadable in backend.snapshot().tables()
    with pytest.raises(StateError, match=r"'old'.*cannot be read back"):
        backend.get_union_list_state(ListStateDescriptor("old"))


def test_restore_after_use_is_an_error() -> None:
    backend = OperatorStateBackend()
    backend.get_list_state(SPLITS)
    with pytest.raises(StateError, match="in use already"):
        backend.restore([])


Copies = st.lists(st.lists(st.binary(max_size=2), max_size=7), max_size=5)


@given(Copies, st.integers(1, 6))
def test_split_deals_all_items_evenly_in_order(copies: list[list[bytes]], parallelism: int) -> None:
    tables = [[OperatorStateTable("s", "split", tuple(items))] for items in copies]
    dealt = [[t.items for t in subtask] for subtask in redistribute(tables, parallelism)]
    assert len(dealt) == parallelism
    if copies:
        runs = [items for (items,) in dealt]
        assert [item for run in runs for item in run] == [i for items in copies for i in items]
        assert max(map(len, runs)) - min(map(len, runs)) <= 1


@given(Copies, st.integers(1, 6))
def test_union_gives_everything_to_everyone(copies: list[list[bytes]], parallelism: int) -> None:
    tables = [[OperatorStateTable("s", "union", tuple(items))] for items in copies]
    everything = tuple(item for items in copies for item in items)
    for subtask in redistribute(tables, parallelism):
        assert [t.items for t in subtask] == ([everything] if copies else [])


def test_broadcast_gives_the_first_copy_that_is_not_empty() -> None:
    tables = [[OperatorStateTable("b", "broadcast", items)] for items in ((), (b"x",), (b"y",))]
    assert redistribute(tables, 2) == [[OperatorStateTable("b", "broadcast", (b"x",))]] * 2


def test_redistribute_refuses_one_name_with_two_modes() -> None:
    tables = [[OperatorStateTable("b", "broadcast", ())], [OperatorStateTable("b", "union", ())]]
    with pytest.raises(StateError, match="'broadcast' and is asked for as 'union'"):
        redistribute(tables, 2)


def test_what_is_in_memory_is_told() -> None:
    state, told = OperatorStateBackend(), dict[str, float]()
    state.report(told.__setitem__)
    assert told == {}
    items = state.get_list_state(ListStateDescriptor("items"))
    rules = state.get_broadcast_state(MapStateDescriptor("rules"))
    state.report(told.__setitem__)
    assert told == {}
    items.add_all(["x" * 1000] * 50)
    for key in range(20):
        rules.put(key, ["y" * 500] * 2)
    state.report(told.__setitem__)
    assert told["state.entries.operator"] == 70
    assert 50 * 1000 + 20 * 500 < told["state.bytes.operator"] < 3 * (50 * 1000 + 20 * 1000)
    items.clear()
    rules.clear()
    state.report(told.__setitem__)
    assert told == {"state.entries.operator": 0, "state.bytes.operator": 0}
