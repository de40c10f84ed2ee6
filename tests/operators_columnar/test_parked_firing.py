"""A window of many keys fires in steps: at each pause a checkpoint may be taken, from which a
restored operator goes on with exactly what is missing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import count, max_
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec
from strom.api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from strom.api.windows.session_windows import EventTimeSessionWindows, ProcessingTimeSessionWindows
from strom.api.windows.time_windows import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from strom.api.windows.triggers import EventTimeTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, Watermark
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey
from strom.operators.window_choice import make_window_operator
from strom.state.key_groups import key_groups_of
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables, regroup

GROUPS = 16
CONFIG = JobConfig(batch_size=5, max_parallelism=GROUPS)
"""Firings go out in batches of at most 20 results."""

KEYS = 130
SPECS = {
    "tumbling": (
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("n", count()), ("m", max_("v")))),
    ),
    "sliding": (SlidingEventTimeWindows.of(20, 10), BuiltinWindow((("n", count()),))),
    "extremes": (TumblingEventTimeWindows.of(10), ExtremeWindow("v", "max", True)),
    "ticks": (
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("n", count()),)),
        ContinuousEventTimeTrigger(4),
    ),
    "ticking ties": (
        TumblingEventTimeWindows.of(10),
        ExtremeWindow("u", "max", True),
        ContinuousEventTimeTrigger(4),
    ),
    "panes": (
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("n", count()), ("m", max_("v")))),
        PurgingTrigger(EventTimeTrigger()),
    ),
    "ticking panes": (
        SlidingEventTimeWindows.of(10, 5),
        BuiltinWindow((("n", count()),)),
        PurgingTrigger(ContinuousEventTimeTrigger(4)),
    ),
    "sessions": (EventTimeSessionWindows.with_gap(5), BuiltinWindow((("n", count()),))),
    "top of sessions": (
        EventTimeSessionWindows.with_gap(5),
        TopNWindow(2, (OrderColumn("v"),), "place"),
    ),
}
LATE = {"sliding": 0, "ticking panes": 0}
"""Records of the script that are late for all windows, where these are not 40."""


def harness_of(kind: str, **settings: Any) -> OperatorHarness:
    assigner, function, *trigger = SPECS[kind]
    spec = WindowSpec(ColumnKey(("k",)), assigner, function, *trigger, allowed_lateness_ms=5)
    return OperatorHarness(
        make_window_operator(spec), config=CONFIG, max_parallelism=GROUPS, **settings
    )


def records(times: list[int], keys: int = KEYS) -> ColumnBatch:
    """A record of each key at each time."""
    k = np.tile(np.arange(keys), len(times))
    stamps = np.repeat(np.array(times, dtype=np.int64), keys)
    names = pa.array([f"key {n}" for n in k.tolist()])
    return ColumnBatch(pa.record_batch({"k": names, "v": k * 10 + stamps, "u": k}), stamps)


def rows(harness: OperatorHarness) -> list[Any]:
    return [tuple(row) for row in harness.outputs()]


@pytest.mark.parametrize("kind", SPECS)
def test_firing_goes_out_in_batches_and_the_watermark_behind_them(kind: str) -> None:
    harness = harness_of(kind)
    harness.push(records([3, 4, 15]))
    harness.pausing = True
    harness.watermark(12)
    assert len(harness.batches()) == 1
    assert harness.controls() == []
    steps = 1
    while harness.busy:
        harness.resume()
        steps += 1
    assert steps > KEYS / 20
    assert all(len(batch) <= 20 for batch in harness.batches())
    assert harness.output.elements[-1] == Watermark(12)
    whole = harness_of(kind)
    whole.push(records([3, 4, 15]))
    whole.watermark(12)
    assert Counter(rows(whole)) == Counter(rows(harness))


@pytest.mark.parametrize("kind", SPECS)
def test_a_checkpoint_at_any_pause_holds_what_is_missing_and_no_more(kind: str) -> None:
    """Restored at the same parallelism and at two, with a record late for what has fired."""
    after = records([8, 13, 25], keys=40)
    whole = harness_of(kind)
    whole.push(records([3, 4, 15]))
    whole.watermark(17)
    whole.push(after)
    whole.watermark(60)
    expected = Counter(rows(whole))
    late = whole.metrics.get_count("numLateRecordsDropped")
    assert late == LATE.get(kind, 40)
    settled = 0
    for pause in range(100):
        first = harness_of(kind)
        first.push(records([3, 4, 15]))
        first.pausing = True
        first.watermark(17)
        first.resume(pause)
        if not first.busy:
            break
        if not first.settled:
            continue
        settled += 1
        snapshot = first.snapshot()
        before = rows(first)
        for ranges in ([(0, GROUPS - 1)], [(0, 6), (7, GROUPS - 1)]):
            found = Counter(before)
            dropped = 0
            for low, high in ranges:
                groups = KeyGroupRange(low, high)
                second = harness_of(kind, restored=cut(snapshot, groups), key_groups=groups)
                second.push(of_groups(after, groups))
                second.watermark(60)
                second.operator.validate()  # type: ignore[attr-defined]
                found.update(rows(second))
                dropped += second.metrics.get_count("numLateRecordsDropped")
            assert found == expected, (pause, ranges)
            assert dropped == late
        first.resume(None)
        first.pausing = False
        first.push(after)
        first.watermark(60)
        assert Counter(rows(first)) == expected, "the snapshot changed nothing"
    assert pause < 99
    assert settled > 3


@pytest.mark.parametrize("kind", SPECS)
def test_a_batch_that_ends_one_window_and_begins_the_next_says_so_of_both(kind: str) -> None:
    """The key groups that the next one has not come to have had all of the first."""
    batches = [of_group(3, {1: 15, 15: 8}), of_group(13, {2: 5, 15: 18})]

    def filled(**settings: Any) -> OperatorHarness:
        harness = harness_of(kind, **settings)
        for batch in batches:
            harness.push(batch)
        return harness

    whole = filled()
    whole.watermark(60)
    expected = Counter(rows(whole))
    for pause in range(100):
        first = filled()
        first.pausing = True
        first.watermark(60)
        first.resume(pause)
        if not first.busy:
            break
        if first.settled:
            second = harness_of(kind, restored=first.snapshot())
            second.watermark(60)
            assert Counter([*rows(first), *rows(second)]) == expected, pause
    assert 0 < pause < 99


def of_group(time: int, counts: dict[int, int]) -> ColumnBatch:
    """Records of so many keys of each of these key groups."""
    every = records([time], 600)
    groups = key_groups_of(every.data.select(["k"]), GROUPS)
    chosen = [np.flatnonzero(groups == group)[:count] for group, count in counts.items()]
    return every.take(np.concatenate(chosen))


def cut(snapshot: OperatorSnapshotTables, groups: KeyGroupRange) -> OperatorSnapshotTables:
    return regroup([snapshot], groups)


def of_groups(batch: ColumnBatch, groups: KeyGroupRange) -> ColumnBatch:
    numbers = key_groups_of(batch.data.select(["k"]), GROUPS)
    return batch.take(np.flatnonzero((numbers >= groups.first) & (numbers <= groups.last)))


@pytest.mark.parametrize("kind", SPECS)
def test_a_batch_that_comes_before_the_rest_has_fired_holds_a_checkpoint_back(kind: str) -> None:
    """The batch is in no state while the restored operator goes on with what it had to fire: it
    would be lost. Woken before it, it goes on with pauses where a checkpoint can be taken."""
    first = harness_of(kind)
    first.push(records([3, 4, 15]))
    first.pausing = True
    first.watermark(17)
    while not first.settled:
        first.resume()
    assert first.busy
    snapshot = cut(first.snapshot(), KeyGroupRange(0, GROUPS - 1))
    woken, given = harness_of(kind, restored=snapshot), harness_of(kind, restored=snapshot)
    woken.pausing = given.pausing = True
    woken.advance_processing_time(0)
    while not woken.settled:
        woken.resume()
    assert woken.busy
    given.push(records([25], keys=40))
    assert given.busy
    while given.busy:
        assert not given.settled
        given.resume()
    woken.resume(None)
    woken.push(records([25], keys=40))
    woken.resume(None)
    assert rows(woken) == rows(given)


@pytest.mark.parametrize("later", [19, 24])
@pytest.mark.parametrize("kind", SPECS)
def test_a_watermark_that_comes_before_the_rest_has_fired_is_not_forgotten(
    kind: str, later: int
) -> None:
    """Restored in the middle of a firing, and once more with a later watermark there already: what
    that makes late stays late, and the session that ends with it has fired when a record comes that
    is not late and begins where it ends."""
    after = records([20, 25] if later == 19 else [12, 20, 25], keys=40)
    whole = harness_of(kind)
    whole.push(records([3, 4, 15]))
    for watermark in (17, later):
        whole.watermark(watermark)
    first = harness_of(kind)
    first.push(records([3, 4, 15]))
    paused(first, 17)
    assert first.busy
    every = KeyGroupRange(0, GROUPS - 1)
    second = harness_of(kind, restored=cut(first.snapshot(), every))
    paused(second, later)
    third = harness_of(kind, restored=cut(second.snapshot(), every))
    for harness in (whole, third):
        harness.push(after)
        harness.watermark(60)
    parts = (first, second, third)
    assert sum((Counter(rows(part)) for part in parts), Counter()) == Counter(rows(whole))
    late = [part.metrics.get_count("numLateRecordsDropped") for part in (whole, *parts)]
    assert late[0] == sum(late[1:])


def paused(harness: OperatorHarness, watermark: int) -> None:
    """At the first pause at which a snapshot may be taken."""
    harness.pausing = True
    harness.watermark(watermark)
    while harness.busy and not harness.settled:
        harness.resume()


def test_the_least_may_be_missing_of_several_subtasks() -> None:
    """Two subtasks of which one had fired all, the other had not: continued as one."""
    halves = [KeyGroupRange(0, 7), KeyGroupRange(8, GROUPS - 1)]
    expected: Counter[Any] = Counter()
    found: Counter[Any] = Counter()
    snapshots = []
    for groups, pausing in zip(halves, (False, True), strict=True):
        half = harness_of("tumbling", key_groups=groups)
        half.push(of_groups(records([3, 15]), groups))
        half.pausing = pausing
        half.watermark(12)
        half.resume(2)
        while half.busy and not half.settled:
            half.resume()
        assert half.busy is pausing
        snapshots.append(half.snapshot())
        found.update(rows(half))
    whole = harness_of("tumbling")
    whole.push(records([3, 15]))
    whole.watermark(60)
    expected.update(rows(whole))
    both = regroup(snapshots, KeyGroupRange(0, GROUPS - 1))
    second = harness_of("tumbling", restored=both)
    second.watermark(60)
    found.update(rows(second))
    assert found == expected


@pytest.mark.parametrize("kind", SPECS)
def test_what_has_fired_to_the_end_of_all_time_is_not_fired_again(kind: str) -> None:
    """Of two subtasks one was in the middle of its last firing, the other had not come to it. They
    are continued as one, a snapshot is taken once all has fired that was under way, and another one
    goes on from that, as one or as two."""
    whole = harness_of(kind)
    whole.push(records([3, 4, 15]))
    for watermark in (12, MAX_TIMESTAMP):
        whole.watermark(watermark)
    halves = [KeyGroupRange(0, 7), KeyGroupRange(8, GROUPS - 1)]
    parts = []
    for groups, watermark in zip(halves, (12, MAX_TIMESTAMP), strict=True):
        half = harness_of(kind, key_groups=groups)
        half.push(of_groups(records([3, 4, 15]), groups))
        half.watermark(12)
        if watermark > 12:
            paused(half, watermark)
            assert half.busy
        parts.append(half)
    every = KeyGroupRange(0, GROUPS - 1)
    both = harness_of(kind, restored=regroup([part.snapshot() for part in parts], every))
    both.advance_processing_time(0)
    snapshot = both.snapshot()
    before = sum((Counter(rows(part)) for part in (*parts, both)), Counter())
    for ranges in ([every], halves):
        found = Counter(before)
        for groups in ranges:
            last = harness_of(kind, restored=cut(snapshot, groups), key_groups=groups)
            last.watermark(12)
            last.watermark(MAX_TIMESTAMP)
            found.update(rows(last))
        assert found == Counter(rows(whole)), ranges


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        WindowSpec(
            ColumnKey(("k",)),
            ProcessingTimeSessionWindows.with_gap(5),
            BuiltinWindow((("n", count()),)),
        ),
        WindowSpec(
            ColumnKey(("k",)),
            TumblingProcessingTimeWindows.of(10),
            BuiltinWindow((("n", count()),)),
            PurgingTrigger(ContinuousProcessingTimeTrigger(4)),
        ),
    ],
)
def test_windows_by_the_clock_fire_in_parts(spec: WindowSpec, at_end: bool) -> None:
    """Because time goes on, or because the input ends; a snapshot between two parts."""

    def of(**settings: Any) -> OperatorHarness:
        return OperatorHarness(
            make_window_operator(spec), config=CONFIG, max_parallelism=GROUPS, **settings
        )

    first = of()
    first.push(records([0]))
    first.pausing = True
    if at_end:
        first.finish()
    else:
        first.advance_processing_time(20)
    while first.busy and not (first.settled and len(rows(first)) > 40):
        first.resume()
    assert first.busy
    before = rows(first)
    second = of(restored=cut(first.snapshot(), KeyGroupRange(0, GROUPS - 1)))
    if at_end:
        second.finish()
    else:
        second.push(records([0], keys=3))
    assert len(before) + len(rows(second)) == KEYS, "before it handles records"
    first.resume(None)
    for whole in (rows(first), before + rows(second)):
        assert len({row[0] for row in whole}) == len(whole) == KEYS
    first.operator.validate()  # type: ignore[attr-defined]
    second.operator.validate()  # type: ignore[attr-defined]
