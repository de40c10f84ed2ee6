"""Built-in functions under triggers of the user's: what comes out at each firing, beside a model
that folds the records anew with plain Python."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from amounts import examples, pairs
from backends import TINY
from firings_kit import (
    ALL,
    FUNCTIONS,
    GROUPS,
    HALVES,
    WHOLE,
    Saying,
    batch,
    held,
    model,
    rounded,
    rows_of,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import collect, count, max_, sum_
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import (
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from strom.core.config import JobConfig
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey, FunctionKey
from strom.core.state_config import StateConfig
from strom.operators.row_windows import leaving_slots
from strom.testing.backends import spilling
from strom.testing.operator_harness import OperatorHarness, regroup


def records_of(seed: int, count: int) -> list[Any]:
    rng = random.Random(seed)
    events: list[Any] = []
    for at in range(count):
        v, x = rng.choice([None, 1, 2, 3]), rng.choice([None, 0.5, 1.0, -2.0])
        t = rng.choice([None, "a", "b", "fire", "purge", "both"])
        events.append((rng.choice("abc"), v, x, t, at + rng.randrange(-3, 3)))
        if rng.random() < 0.1:
            events.append(at - 5)
    return events


ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(10),
    "sliding": SlidingEventTimeWindows.of(12, 6),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("windows", "when"), pairs(ASSIGNERS, ["each", "some"]))
def test_each_firing_gives_what_the_window_holds(windows: str, when: str, function: str) -> None:
    """Batches of one record, of some, and as long as they can be; some with restarts."""
    spec = WindowSpec(
        ColumnKey(("k",)), ASSIGNERS[windows], FUNCTIONS[function], Saying(when == "each")
    )
    events = records_of(5, 110)
    expected = model(spec, events)
    assert len(expected) > 30
    assert rounded(run(spec, events, {}, 7)) == rounded(expected)
    cuts = {20: HALVES, 50: HALVES, 70: WHOLE, 100: HALVES}
    for size in (1, 1000):
        assert rounded(run(spec, events, cuts, size)) == rounded(expected)


def test_results_come_in_the_order_in_which_windows_fire() -> None:
    spec = WindowSpec(
        ColumnKey(("k",)),
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("n", count()), ("s", sum_("v")))),
        Saying(always=True),
    )
    harness = OperatorHarness(spec, config=JobConfig(batch_size=3))
    harness.push(batch([(k, 1, None, None, 1) for k in "abacabca"]))
    found = [(row.k, row.n, row.s) for row in harness.outputs()]
    assert found == [
        *(("a", 1, 1), ("b", 1, 1), ("a", 2, 2), ("c", 1, 1)),
        *(("a", 3, 3), ("b", 2, 2), ("c", 2, 2), ("a", 4, 4)),
    ]
    assert [len(one) for one in harness.batches()] == [3, 3, 2]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from([0.5, 1.0]),
        st.sampled_from([None, "a", "fire", "purge", "both"]),
        st.integers(0, 40),
    )
    | st.integers(0, 40),
    max_size=30,
)


@settings(max_examples=examples(80), deadline=None)
@given(EVENTS, st.integers(1, 9), st.sets(st.integers(0, 29)), st.sampled_from(list(FUNCTIONS)))
def test_any_events_and_any_cuts(
    events: list[Any], size: int, cuts: set[int], function: str
) -> None:
    spec = WindowSpec(
        ColumnKey(("k",)), TumblingEventTimeWindows.of(10), FUNCTIONS[function], Saying()
    )
    ways = {at: (HALVES, WHOLE)[at % 2] for at in cuts}
    assert rounded(run(spec, events, ways, size, batch_size=2)) == rounded(model(spec, events))


AWAY = st.sampled_from([[TINY], [StateConfig(), TINY], [TINY, StateConfig()], [spilling(1 << 20)]])
"""Where windows that are not in use are, from one restart to the next."""


@settings(max_examples=examples(40), deadline=None)
@given(
    EVENTS,
    st.integers(1, 9),
    st.sets(st.integers(0, 29)),
    st.sampled_from(list(FUNCTIONS)),
    AWAY,
    st.sampled_from([TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(4)]),
    st.sampled_from([0, 2, leaving_slots.COME]),
)
def test_windows_leave_memory_and_come_back(
    events: list[Any],
    size: int,
    cuts: set[int],
    function: str,
    states: Any,
    assigner: Any,
    come: int,
) -> None:
    spec = WindowSpec(ColumnKey(("k",)), assigner, FUNCTIONS[function], Saying())
    ways = {at: (HALVES, WHOLE)[at % 2] for at in cuts}
    expected = run(spec, events, {}, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving_slots, "COME", come)
        found = run(spec, events, ways, size, batch_size=2, states=states)
    assert rounded(found) == rounded(expected)


def test_few_windows_are_in_memory() -> None:
    """Of many keys with a window each, that a trigger of the user's fires by and by."""
    spec = WindowSpec(
        FunctionKey(lambda row: f"{row.k} {row.v}"),
        SlidingEventTimeWindows.of(40, 20),
        BuiltinWindow((("n", count()), ("t", max_("t")), ("all", collect("v")))),
        Saying(),
    )
    config = JobConfig(state=spilling(100 << 10))
    harness = OperatorHarness(spec, config=config)
    contents: Any = harness.operator._contents  # type: ignore[attr-defined]
    most = 0
    for turn in range(20):
        records: list[Any] = [("k", (turn * 280 + i) % 3600, None, "w", turn) for i in range(400)]
        harness.push(batch(records))
        contents.validate()
        most = max(most, len(contents._leaving._windows))
        assert sum(map(len, contents._slots.values())) == 2 * len(contents._leaving._windows)
    assert most < 1200
    gauges: dict[str, float] = {}
    harness.keyed_state.report(gauges.__setitem__)
    assert gauges["state.entries.spilled"] > 4_000
    harness.watermark(100)
    found = harness.outputs()
    assert len(found) == 2 * 3600
    assert sum(row.n for row in found) == 2 * 8_000
    contents.validate()
    assert not contents._leaving._windows
    harness.close()


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS, st.integers(1, 9), st.sets(st.integers(0, 29)), st.sampled_from(list(FUNCTIONS)))
def test_sessions_that_merge_give_the_same_however_batches_are_cut(
    events: list[Any], size: int, cuts: set[int], function: str
) -> None:
    spec = WindowSpec(
        ColumnKey(("k",)), EventTimeSessionWindows.with_gap(4), FUNCTIONS[function], Saying()
    )
    ways = {at: (HALVES, WHOLE)[at % 2] for at in cuts}
    one_by_one = run(spec, events, {}, 1)
    assert rounded(run(spec, events, ways, size, batch_size=2)) == rounded(one_by_one)


def test_sessions_that_merge_hold_the_records_of_both_in_order_of_arrival() -> None:
    spec = WindowSpec(ColumnKey(("k",)), EventTimeSessionWindows.with_gap(4), ALL, Saying())
    records: list[Any] = [
        ("a", 1, 0.5, "w", 20),
        ("a", 2, 1.0, "x", 10),
        ("a", 3, None, "y", 23),
        ("a", 2, 2.0, "z", 14),
        ("a", 1, 1.0, "a", 17),
    ]
    for size in (1, 2, 5):
        for cuts in ({}, {3: HALVES, 4: WHOLE}):
            found = run(spec, records, cuts, size)
            ((_, expected),) = [(0, row) for row in held(ALL, records)]
            assert rounded(found) == rounded([(("a", 10, 27), expected)])


def test_equal_keys_of_two_kinds_are_two_where_two_subtasks_meet() -> None:
    """1 and True go to two subtasks by their hashes, and stay two keys."""
    spec = WindowSpec(
        FunctionKey(lambda row: True if row.k == "true" else 1),
        GlobalWindows.create(),
        BuiltinWindow((("n", count()), ("all", collect("v")))),
        Saying(at_end=False),
    )
    snapshots = []
    for name, own in (("true", KeyGroupRange(4, 7)), ("one", KeyGroupRange(0, 3))):
        task = OperatorHarness(spec, max_parallelism=GROUPS, key_groups=own)
        task.push(rows_of([(name, 5, None, None, 1), (name, 6, None, None, 1)]), [1, 1])
        snapshots.append(task.snapshot())
    one = OperatorHarness(spec, max_parallelism=GROUPS, restored=regroup(snapshots, WHOLE[0]))
    one.push(rows_of([("one", 7, None, "fire", 1)]), [1])
    one.push(rows_of([("true", 8, None, "fire", 1)]), [1])
    found = [(n, Counter(values)) for *_, n, values in one.outputs()]
    assert found == [(3, Counter([5, 6, 7])), (3, Counter([5, 6, 8]))]
    one.operator._contents.validate()


def test_windows_that_are_over_leave_nothing() -> None:
    spec = WindowSpec(
        FunctionKey(lambda row: f"{row.k} {row.v}"),
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("n", count()), ("t", max_("t")), ("all", collect("t")))),
        Saying(),
    )
    harness = OperatorHarness(spec)
    for turn in range(12):
        records: list[Any] = [
            ("k", turn * 1000 + i, None, f"text {i}", turn * 10) for i in range(1000)
        ]
        harness.push(batch(records))
        harness.watermark(turn * 10 + 9)
        contents: Any = harness.operator._contents  # type: ignore[attr-defined]
        contents.validate()
        assert contents._used <= 1000
        assert contents._table.owners <= 6000
        assert len(harness.keyed_state.object_keys("")) <= 10_000
    assert len(harness.outputs()) == 12_000


def test_a_trigger_that_never_fires_holds_bounded_values_only() -> None:
    spec = WindowSpec(
        ColumnKey(("k",)), GlobalWindows.create(), BuiltinWindow((("t", max_("t")),)), Saying()
    )
    harness = OperatorHarness(spec)
    for turn in range(30):
        records: list[Any] = [("k", None, None, f"{turn * 1000 + i:09}", 1) for i in range(1000)]
        for at in range(0, 1000, 100):
            harness.push(batch(records[at : at + 100]))
    contents: Any = harness.operator._contents  # type: ignore[attr-defined]
    (name,) = contents._aggregates.values()
    store = contents._table.stores[name]
    assert len(store) <= 5000
