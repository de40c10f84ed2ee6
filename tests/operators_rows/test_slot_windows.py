"""Built-in functions under triggers of the user's: what comes out at each firing, beside a model
that folds the records anew with plain Python."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples, pairs
from backends import TINY
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_folds import to_function
from strom.api.aggregates import (
    Aggregate,
    approx_count_distinct,
    arg_max,
    arg_min,
    collect,
    count,
    count_distinct,
    first,
    largest,
    last,
    max_,
    mean,
    min_,
    smallest,
    stddev,
    sum_,
    variance,
)
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec
from strom.api.windows.base import Trigger, TriggerResult
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import (
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey, FunctionKey
from strom.core.state_config import StateConfig
from strom.operators.row_windows import leaving_slots
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.testing.backends import spilling
from strom.testing.operator_harness import OperatorHarness, regroup

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("t", pa.string())])
AGGREGATES: dict[str, Aggregate] = {
    "rows": count(),
    "values": count("v"),
    "some": count().where(pl.col("v") > 1),
    "sum": sum_("v"),
    "halves": sum_("x"),
    "mean": mean("x"),
    "low": min_("v"),
    "word": max_("t"),
    "one": first("t"),
    "end": last("v"),
    "spread": variance("v"),
    "off": stddev("v", ddof=0),
    "at_low": arg_min("t", by="v"),
    "at_high": arg_max("v", by="t"),
    "distinct": count_distinct("t"),
    "about": approx_count_distinct("v", precision=4),
    "all": collect("v"),
    "words": collect("t").where(pl.col("v") > 1),
    "best": largest("x", 2),
    "least": smallest("t", 2),
}
ALL = BuiltinWindow(tuple(AGGREGATES.items()))
RANKED = TopNWindow(2, (OrderColumn("x", True), OrderColumn("t", False)), "rank")
FUNCTIONS: dict[str, Any] = {
    "aggregates": ALL,
    "extreme": ExtremeWindow("v", "max", False),
    "ties": ExtremeWindow("x", "min", True),
    "top": RANKED,
}


class Saying(Trigger):
    """Does with each record what its `v` and `t` say, and with time what `at_end` says."""

    def __init__(self, always: bool = False, at_end: bool = True) -> None:
        self._always = always
        self._at_end = at_end

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        if self._at_end and window.max_timestamp() < MAX_TIMESTAMP:
            ctx.register_event_time_timer(window.max_timestamp())
        return self.says(element)

    def says(self, element: Any) -> TriggerResult:
        if self._always:
            return TriggerResult.FIRE
        return {
            "fire": TriggerResult.FIRE,
            "purge": TriggerResult.PURGE,
            "both": TriggerResult.FIRE_AND_PURGE,
        }.get(element.t, TriggerResult.CONTINUE)

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        fires = time == window.max_timestamp()
        return TriggerResult.FIRE if fires else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        if self._at_end:
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


Record = tuple[str, int | None, float | None, str | None, int]
"""k, v, x, t, time"""


def batch(records: list[Record]) -> ColumnBatch:
    *columns, times = zip(*records, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), np.array(times))


def rows_of(records: list[Record]) -> list[Any]:
    return batch(records).rows() if records else []


def held(function: Any, records: list[Record]) -> list[tuple[Any, ...]]:
    """What a window that holds these records gives."""
    if isinstance(function, BuiltinWindow):
        results, rows = [], rows_of(records)
        for _, aggregate in function.aggregates:
            fold = to_function(aggregate)
            accumulator = fold.create_accumulator()
            for row in rows:
                accumulator = fold.add(row, accumulator)
            results.append(fold.get_result(accumulator))
        return [tuple(results)]
    if isinstance(function, TopNWindow):
        order = sorted(
            records, key=lambda r: (r[2] is None, -(r[2] or 0), r[3] is None, r[3] or "")
        )
        return [(*record[:4], place) for place, record in enumerate(order[: function.n], 1)]
    at = SCHEMA.names.index(function.field)
    values = [record[at] for record in records if record[at] is not None]
    if not values:
        return []
    best = max(values) if function.kind == "max" else min(values)
    found = [record[:4] for record in records if record[at] == best]
    return found if function.ties else found[:1]


def model(spec: WindowSpec, events: list[Any]) -> list[tuple[Any, ...]]:
    """(key, start, results) at each firing, in order for each key and window."""
    trigger: Any = spec.trigger
    windows: dict[tuple[str, int, int], list[Record]] = {}
    out: list[tuple[Any, ...]] = []
    mark = -(2**63)
    for event in [*events, MAX_TIMESTAMP]:
        if isinstance(event, int):
            mark = max(mark, event)
            for bounds in sorted(windows):
                if bounds[2] - 1 <= mark:
                    records = windows.pop(bounds)
                    if records:
                        out += [(bounds, row) for row in held(spec.function, records)]
            continue
        record: Record = event
        for window in spec.assigner.assign_windows(None, record[-1], None):
            bounds = (record[0], window.start, window.end)
            if window.end - 1 <= mark:
                continue
            windows.setdefault(bounds, []).append(record)
            says = trigger.says(rows_of([record])[0])
            if says in (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE):
                out += [(bounds, row) for row in held(spec.function, windows[bounds])]
            if says in (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE):
                windows[bounds] = []
    return out


GROUPS = 8
WHOLE = [KeyGroupRange(0, 7)]
HALVES = [KeyGroupRange(0, 3), KeyGroupRange(4, 7)]


def run(
    spec: WindowSpec,
    events: list[Any],
    cuts: dict[int, Any],
    size: int,
    batch_size: int = 1024,
    states: Sequence[StateConfig] = (StateConfig(),),
) -> list[Any]:
    """As the model; records in batches of `size`, at the cuts by a snapshot into other subtasks,
    whose state is where `states` say in turn."""
    from strom.state.hashing import stable_hash

    ranges, snapshots = WHOLE, None
    turns = itertools.cycle(states)
    out: list[Any] = []

    def start() -> list[OperatorHarness]:
        config = JobConfig(max_parallelism=GROUPS, batch_size=batch_size, state=next(turns))
        return [
            OperatorHarness(
                make_window_operator(spec),
                config=config,
                max_parallelism=GROUPS,
                key_groups=one,
                restored=None if snapshots is None else regroup(snapshots, one),
            )
            for one in ranges
        ]

    def send(records: list[Record]) -> None:
        for task, own in zip(tasks, ranges, strict=True):
            mine = [r for r in records if stable_hash(r[0]) % GROUPS in own]
            if mine:
                task.push(batch(mine))
                check(task)

    def check(task: OperatorHarness) -> None:
        assert isinstance(task.operator, RowWindowOperator)
        if task.operator._progress.layout is not None:
            contents = task.operator._contents
            contents.validate()
            if contents._leaving is not None:
                contents._table.validate()

    def take() -> None:
        names = spec.function.aggregates if isinstance(spec.function, BuiltinWindow) else None
        for task in tasks:
            for row in task.outputs():
                (*values,) = row
                if names is not None:
                    out.append(((*values[:3],), tuple(values[3:])))
                else:
                    bounds = (values[0], values[4], values[5])
                    out.append((bounds, (*values[:4], *values[6:])))

    def close() -> None:
        for task in tasks:
            task.close()

    tasks = start()
    pending: list[Record] = []
    for at, event in enumerate([*events, MAX_TIMESTAMP]):
        if at in cuts:
            send(pending)
            pending = []
            take()
            snapshots = [task.snapshot() for task in tasks]
            close()
            ranges = cuts[at]
            tasks = start()
        if isinstance(event, int):
            send(pending)
            pending = []
            for task in tasks:
                if event > task.output.watermark:
                    task.watermark(event)
                    check(task)
        else:
            pending.append(event)
            if len(pending) == size:
                send(pending)
                pending = []
    take()
    for task in tasks:
        tables = {table.name: table.data.num_rows for table in task.snapshot().keyed}
        assert not tables.get("__window_slots"), "windows are over, and hold something still"
    close()
    return out


def rounded(found: list[Any]) -> list[Any]:
    """By key and window, in order: what fires for others in between is of no account."""
    plain = [
        (bounds, tuple(round(v, 9) if isinstance(v, float) else v for v in row))
        for bounds, row in found
    ]
    return sorted(plain, key=lambda pair: pair[0])


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
