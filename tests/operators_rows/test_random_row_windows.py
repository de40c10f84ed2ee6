"""The row window operator: built-in functions, and random streams against a naive model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from columns_kit import batch
from hypothesis import given, settings
from hypothesis import strategies as st
from row_windows_kit import (
    KEY,
    Averages,
    Values,
    WithKey,
    listing,
    push,
    state_names,
)
from strom.api.aggregates import count, first, last, max_, mean, sum_
from strom.api.specs.windows import (
    AggregateWindow,
    BuiltinWindow,
    ExtremeWindow,
    ProcessWindow,
    WindowSpec,
)
from strom.api.windows.continuous_triggers import ContinuousEventTimeTrigger
from strom.api.windows.count_windows import CountSlidingWindowAssigner
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.elements import MAX_TIMESTAMP
from strom.core.keys import ColumnKey
from strom.testing.operator_harness import OperatorHarness

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32())])


def test_builtin_aggregates_over_sessions():
    aggregates = (
        ("n", count()),
        ("total", sum_("v")),
        ("top", max_("v")),
        ("avg", mean("v")),
        ("one", first("v")),
        ("end", last("v")),
    )
    spec = WindowSpec(
        ColumnKey(("k",)), EventTimeSessionWindows.with_gap(5), BuiltinWindow(aggregates)
    )
    harness = OperatorHarness(spec)
    rows = [("a", 1), ("a", None), ("a", 5), ("b", None)]
    harness.push(batch(SCHEMA, rows, stamps=[0, 8, 4, 3]))
    harness.watermark(MAX_TIMESTAMP)
    (found,) = harness.batches()
    assert found.data.to_pylist() == [
        {
            "k": "b",
            "window_start": 3,
            "window_end": 8,
            "n": 1,
            "total": None,
            "top": None,
            "avg": None,
            "one": None,
            "end": None,
        },
        {
            "k": "a",
            "window_start": 0,
            "window_end": 13,
            "n": 3,
            "total": 6,
            "top": 5,
            "avg": 3.0,
            "one": 1,
            "end": 5,
        },
    ]
    kinds = [str(kind) for kind in found.data.schema.types]
    assert kinds == [
        "string",
        "int64",
        "int64",
        "int64",
        "int64",
        "int32",
        "double",
        "int32",
        "int32",
    ]
    assert found.timestamps.tolist() == [7, 12]


def test_types_of_builtin_results_survive_a_restore():
    spec = WindowSpec(
        ColumnKey(("k",)), EventTimeSessionWindows.with_gap(5), BuiltinWindow((("m", max_("v")),))
    )
    harness = OperatorHarness(spec)
    harness.push(batch(SCHEMA, [("a", None)], stamps=[0]))
    restored = OperatorHarness(spec, restored=harness.snapshot())
    restored.watermark(MAX_TIMESTAMP)
    (found,) = restored.batches()
    assert [str(kind) for kind in found.data.schema.types] == ["string", "int64", "int64", "int32"]


@pytest.mark.parametrize(
    ("ties", "expected"), [(True, [(5, 0, 13), (5, 0, 13)]), (False, [(5, 0, 13)])]
)
def test_extreme_over_sessions(ties, expected):
    spec = WindowSpec(
        ColumnKey(("k",)), EventTimeSessionWindows.with_gap(5), ExtremeWindow("v", "max", ties)
    )
    harness = OperatorHarness(spec)
    harness.push(batch(SCHEMA, [("a", 5), ("a", 3), ("a", 5), ("a", None)], stamps=[0, 8, 4, 2]))
    harness.watermark(MAX_TIMESTAMP)
    assert [tuple(row)[1:] for row in harness.outputs()] == expected
    assert harness.batches()[0].data.schema.names == ["k", "v", "window_start", "window_end"]


def test_builtin_with_a_function_key_and_object_records():
    spec = WindowSpec(KEY, EventTimeSessionWindows.with_gap(5), BuiltinWindow((("s", sum_("f1")),)))
    harness = OperatorHarness(spec)
    push(harness, ("a", 1), ("a", 3))
    harness.watermark(MAX_TIMESTAMP)
    assert harness.outputs() == [("a", 1, 8, 4)]


def test_many_firings_are_cut_into_batches():
    from strom.core.config import JobConfig

    harness = OperatorHarness(
        listing(TumblingEventTimeWindows.of(5)), config=JobConfig(batch_size=10)
    )
    push(harness, *[(key, 1) for key in range(25)])
    harness.watermark(10)
    assert [len(batch) for batch in harness.batches()] == [10, 10, 5]


# --- random streams -------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.integers(-30, 60)),
        st.integers(-30, 70),  # a watermark
    ),
    max_size=40,
)


def naive(events, windows_of, lateness):
    """One firing per window when the watermark passes it, one more per late record; rescans all."""
    held, fired, out, dropped = {}, [], [], 0
    now = -(2**63)
    for event in [*events, MAX_TIMESTAMP]:
        if isinstance(event, int):
            now, before = max(now, event), now
            due = [(end, order, key, start) for (key, start, end), (order, _) in held.items()]
            for end, _, key, start in sorted(due):
                if before < end - 1 <= now:
                    out.append((key, start, end, list(held[key, start, end][1])))
            held = {w: v for w, v in held.items() if w[2] - 1 + lateness > now}
            continue
        key, ts = event
        alive = [(s, e) for s, e in windows_of(ts) if e - 1 + lateness > now]
        for start, end in alive:
            held.setdefault((key, start, end), (len(fired), []))[1].append(ts)
            fired.append(None)
            if end - 1 <= now:
                out.append((key, start, end, list(held[key, start, end][1])))
        if not alive and ts + lateness <= now:
            dropped += 1
    return out, dropped


def run(spec, events, cuts=()):
    """Outputs and number of dropped records, restoring from a snapshot at each cut."""
    harness = OperatorHarness(spec)
    outputs, dropped = [], 0
    for index, event in enumerate([*events, MAX_TIMESTAMP]):
        if index in cuts:
            outputs += harness.outputs()
            dropped += harness.metrics.get_count("numLateRecordsDropped")
            harness = OperatorHarness(spec, restored=harness.snapshot(), attempt=index)
        if isinstance(event, int):
            if event > harness.output.watermark:
                harness.watermark(event)
        else:
            push(harness, event)
    outputs += harness.outputs()
    assert state_names(harness) == set()
    return outputs, dropped + harness.metrics.get_count("numLateRecordsDropped")


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS, st.sampled_from([(10, 10, 0), (7, 3, 1), (4, 6, -2)]), st.sampled_from([0, 5]))
def test_aligned_windows_match_the_model(events, shape, lateness):
    size, slide, offset = shape
    assigner = SlidingEventTimeWindows.of(size, slide, offset)

    def windows_of(ts):
        starts = range(ts - size - abs(offset) - slide, ts + 1)
        found = [s for s in starts if (s - offset) % slide == 0 and s <= ts < s + size]
        return [(s, s + size) for s in reversed(found)]

    spec = listing(assigner, allowed_lateness_ms=lateness)
    assert run(spec, events) == naive(events, windows_of, lateness)


def naive_sessions(events, gap):
    """Sessions that never see late records: sort and split."""
    out = []
    for key in "ab":
        group = []
        for ts in [*sorted(ts for k, ts in events if k == key), None]:
            if group and (ts is None or ts > group[-1] + gap):
                out.append((key, group[0], group[-1] + gap, group))
                group = []
            group.append(ts)
    return sorted(out)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 60)), max_size=30),
    st.integers(1, 9),
)
def test_sessions_match_the_model(events, gap):
    outputs, _ = run(listing(EventTimeSessionWindows.with_gap(gap)), events)
    assert sorted((k, s, e, sorted(v)) for k, s, e, v in outputs) == naive_sessions(events, gap)


SPECS = {
    "tumbling": listing(TumblingEventTimeWindows.of(10)),
    "late": listing(SlidingEventTimeWindows.of(8, 4), allowed_lateness_ms=6),
    "sessions": listing(EventTimeSessionWindows.with_gap(6), allowed_lateness_ms=6),
    "aggregate": WindowSpec(
        KEY, EventTimeSessionWindows.with_gap(6), AggregateWindow(Averages(), WithKey())
    ),
    "count": WindowSpec(KEY, CountSlidingWindowAssigner.of(4, 2), ProcessWindow(Values())),
    "continuous": listing(
        TumblingEventTimeWindows.of(20), trigger=ContinuousEventTimeTrigger.of(4)
    ),
    "builtin": WindowSpec(
        KEY,
        EventTimeSessionWindows.with_gap(6),
        BuiltinWindow((("n", count()), ("one", first("f1")), ("end", last("f1")))),
    ),
}


@pytest.mark.parametrize("name", [name for name in SPECS if name != "count"])
@settings(max_examples=examples(25), deadline=None)
@given(EVENTS, st.sets(st.integers(0, 40), max_size=3))
def test_a_restore_anywhere_changes_nothing(name, events, cuts):
    assert run(SPECS[name], events, cuts) == run(SPECS[name], events)


@settings(max_examples=examples(25), deadline=None)
@given(EVENTS, st.sets(st.integers(0, 40), max_size=3))
def test_a_restore_anywhere_keeps_counts(events, cuts):
    def outputs(cuts):
        harness, found = OperatorHarness(SPECS["count"]), []
        for index, event in enumerate(events):
            if index in cuts:
                found += harness.outputs()
                harness = OperatorHarness(SPECS["count"], restored=harness.snapshot())
            if not isinstance(event, int):
                push(harness, event)
        return found + harness.outputs()

    assert outputs(cuts) == outputs(())


def test_one_batch_gives_what_record_by_record_gives():
    rng = np.random.default_rng(5)
    events = [
        ("ab"[k], int(ts))
        for k, ts in zip(rng.integers(0, 2, 300), rng.integers(0, 500, 300), strict=True)
    ]
    for spec in (SPECS["tumbling"], SPECS["late"], SPECS["sessions"], SPECS["builtin"]):
        whole = OperatorHarness(spec)
        push(whole, *events)
        whole.watermark(MAX_TIMESTAMP)
        single = OperatorHarness(spec)
        for event in events:
            push(single, event)
        single.watermark(MAX_TIMESTAMP)
        assert whole.outputs() == single.outputs()
