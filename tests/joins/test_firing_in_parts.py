"""What a watermark makes a join emit comes out in parts; at each pause a checkpoint may pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import pairs
from pauses_kit import GROUPS, RANGES, check_pauses, run
from strom import StreamExecutionEnvironment
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import Watermark
from strom.core.keys import ColumnKey
from strom.operators.joins import temporal, window
from strom.testing.operator_harness import OperatorHarness, regroup

CONFIG = JobConfig(batch_size=5, max_parallelism=GROUPS)
"""Results go out in batches of at most 20."""

SIDES = tuple(pa.schema([("k", pa.string()), (name, pa.int64())]) for name in ("l", "r"))
KEY = ColumnKey(("k",))
Make = Callable[..., OperatorHarness]


def records(port: int, times: list[int], keys: int = 40, nulls: int = 0) -> tuple[int, ColumnBatch]:
    """A record of each key at each time, `nulls` of the keys being null."""
    count = keys * len(times)
    numbers = np.arange(count) % keys
    names = [f"key {n}" if n >= nulls else None for n in numbers.tolist()]
    arrays = [pa.array(names, pa.string()), pa.array(np.arange(count))]
    stamps = np.repeat(np.array(times, dtype=np.int64), keys)
    return port, ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=SIDES[port]), stamps)


def joined(join: Callable[[Any, Any], Any]) -> Make:
    def make(**settings: Any) -> OperatorHarness:
        env = StreamExecutionEnvironment.get_execution_environment()
        left, right = (env.from_collection([]).key_by("k") for _ in SIDES)
        stream = join(left, right)
        return OperatorHarness.of(stream, config=CONFIG, max_parallelism=GROUPS, **settings)

    return make


TYPES = {"left_type": SIDES[0], "right_type": SIDES[1]}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal, "MAX_ROWS", 20)
    monkeypatch.setattr(window, "PART_BATCHES", 1)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_temporal_join(how: str) -> None:
    """Versions at 2 and 5 for most keys; behind the pause another one at 4, late, which records
    that were due before it came must not find."""
    make = joined(lambda left, right: left.temporal_join(right, how, **TYPES))
    before = [records(1, [2], 30), records(0, [8, 3, 6, 12]), records(1, [5], 20)]
    after = [records(1, [4, 11], 35), records(0, [4, 14], 35), 10, 30]
    assert check_pauses(make, KEY, before, 10, after, lambda row: row[0]) >= 4


@pytest.mark.usefixtures("small_batches")
def test_a_subtask_that_was_not_told_of_the_watermark_yet() -> None:
    """Two subtasks at one barrier, continued as one: the records of the one that had not begun wait
    for a version that comes before the watermark."""
    make = joined(lambda left, right: left.temporal_join(right, "left", **TYPES))
    before = [records(1, [2]), records(0, [8, 3, 6, 12])]
    halves = []
    for number, groups in enumerate(RANGES[1]):
        half = make(key_groups=groups)
        run(half, [(port, of(batch, groups)) for port, batch in before])
        half.pausing = number == 0
        if number == 0:
            half.watermark(10)
        assert half.settled
        halves.append(half)
    assert halves[0].busy
    both = make(restored=regroup([half.snapshot() for half in halves], RANGES[0][0]))
    later = records(1, [5])
    run(both, [later, 10, 30])
    whole = [make(key_groups=groups) for groups in RANGES[1]]
    for number, harness in enumerate(whole):
        groups = RANGES[1][number]
        run(harness, [(port, of(batch, groups)) for port, batch in before])
        late = (1, of(later[1], groups))
        run(harness, [late, 10, 30] if number else [10, late, 30])
    found = sorted(map(str, [*halves[0].outputs(), *both.outputs()]))
    assert found == sorted(map(str, [row for harness in whole for row in harness.outputs()]))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("windowed", [False, True])
def test_a_watermark_that_comes_while_more_was_due_is_not_forgotten(windowed: bool) -> None:
    """Restored in the middle of a firing, and once more with a later watermark there already:
    records that are late behind it find none that were due."""

    def join(left: Any, right: Any) -> Any:
        if windowed:
            return left.window_join(right, WINDOWS["tumbling"], "left", **TYPES)
        return left.temporal_join(right, "left", **TYPES)

    make = joined(join)
    before = [records(1, [2]), records(0, [3, 8, 16])]
    after = [records(1, [21, 13]), records(0, [22]), 40]
    whole = make()
    run(whole, [*before, 10, 20, *after])
    first = make()
    run(first, before)
    paused(first, 10)
    assert first.busy
    second = make(restored=regroup([first.snapshot()], RANGES[0][0]))
    paused(second, 20)
    third = make(restored=regroup([second.snapshot()], RANGES[0][0]))
    run(third, after)
    found = [row for part in (first, second, third) for row in part.outputs()]
    assert sorted(map(str, found)) == sorted(map(str, whole.outputs()))


def paused(harness: OperatorHarness, watermark: int) -> None:
    """At the first pause at which a snapshot may be taken."""
    harness.pausing = True
    harness.watermark(watermark)
    while harness.busy and not harness.settled:
        harness.resume()


WINDOWS = {
    "tumbling": TumblingEventTimeWindows.of(10),
    "sliding": SlidingEventTimeWindows.of(20, 5),
}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("how", "windows"), pairs(["inner", "left", "right", "full", "semi", "anti"], WINDOWS)
)
def test_a_window_join(how: str, windows: str) -> None:
    """Keys on one side only, null keys, windows of one and of several slices; behind the pause
    records that are late, or would be in windows which have fired for some key groups."""
    assigner = WINDOWS[windows]
    make = joined(lambda left, right: left.window_join(right, assigner, how, **TYPES))
    sizes = (36, 10) if how == "anti" else (24, 36)
    before = [
        records(0, [1, 4, 12], sizes[0], nulls=2),
        records(1, [2, 3, 13], sizes[1], nulls=3),
    ]
    after = [records(1, [7, 13, 16], 20), records(0, [9, 16, 11], 20), 10, 60]
    settled = check_pauses(make, KEY, before, 10, after)
    assert settled >= 2


def test_a_window_in_which_one_key_is_frequent() -> None:
    """Its product takes many batches, of which state knows nothing; the other keys' do."""
    make = joined(lambda left, right: left.window_join(right, WINDOWS["tumbling"], **TYPES))
    often = records(0, [3] * 30, 1), records(1, [3] * 30, 1)
    before = [records(0, [1, 4]), records(1, [2, 3]), *often]
    assert check_pauses(make, KEY, before, 10, [records(0, [12]), 10, 30]) >= 3
    harness = make()
    run(harness, before)
    harness.pausing = True
    harness.watermark(10)
    settled = []
    while harness.busy:
        settled.append(harness.settled)
        harness.resume()
    assert settled.count(False) >= 40
    assert all(len(batch) <= 20 for batch in harness.batches())
    assert harness.output.elements[-1] == Watermark(10)


@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
def test_what_expires_in_an_interval_join(how: str) -> None:
    """Records without partner, of times -30 to 9, many of them of one time, and others among them.
    Behind the pause come records that meet those which have not expired."""
    make = joined(lambda left, right: left.interval_join(right, -4, 3, how, **TYPES))
    before = [
        records(0, [*range(-30, 10), -7, -7, -7], 9),
        records(1, [*range(9, -30, -1), -8, -8, -8], 7 if how in ("left", "anti") else 12),
        records(0, [-40, 7, 12], 20),
    ]
    after = [records(1, [12, 11, 9], 30), records(0, [13, 11, 12], 30), 10, 60]
    assert check_pauses(make, KEY, before, 10, after) >= 2


def of(batch: ColumnBatch, groups: Any) -> ColumnBatch:
    from strom.state.key_groups import key_groups_of

    numbers = key_groups_of(batch.data.select(["k"]), GROUPS)
    return batch.take(np.flatnonzero((numbers >= groups.first) & (numbers <= groups.last)))
