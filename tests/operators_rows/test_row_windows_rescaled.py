"""Row windows of subtasks that had come to different times, in one subtask: what is late for a key
group that is ahead stays late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import count, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.state.key_groups import key_group
from strom.testing.operator_harness import OperatorHarness, regroup

HALVES = KeyGroupRange(0, 63), KeyGroupRange(64, 127)
FUNCTION = BuiltinWindow((("n", count()), ("t", sum_("v"))))
LATE = OutputTag("late")
ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows(10),
    "sliding": SlidingEventTimeWindows(10, 5),
    "sessions": EventTimeSessionWindows.with_gap(5),
}


def batch(rows: Sequence[tuple[str, int, int]]) -> ColumnBatch:
    keys, values, times = zip(*rows, strict=True)
    data = pa.record_batch({"k": pa.array(keys), "v": pa.array(values, pa.int64())})
    return ColumnBatch(data, np.array(times, dtype=np.int64))


def key_in(half: KeyGroupRange) -> str:
    return next(key for key in "abcdefgh" if key_group(key, 128) in half)


@pytest.mark.parametrize("lateness", [0, 12])
@pytest.mark.parametrize("name", ASSIGNERS)
def test_what_is_late_for_a_group_ahead_stays_late(name: str, lateness: int) -> None:
    """watermarks before   behind: 2    ahead: 40
    both then get records of 3 (late with the one ahead), 25 and 45, and watermarks 15 and 90."""
    behind, ahead = map(key_in, HALVES)
    spec = WindowSpec(ColumnKey(("k",)), ASSIGNERS[name], FUNCTION, None, lateness, LATE)
    found = []
    for make in (make_window_operator, RowWindowOperator):
        halves = [OperatorHarness(make(spec), key_groups=half) for half in HALVES]
        for half, key, watermark in zip(halves, (behind, ahead), (2, 40), strict=True):
            half.push(batch([(key, 1, 1), (key, 2, 44)]))
            half.watermark(watermark)
        one = regroup([half.snapshot() for half in halves], KeyGroupRange(0, 127))
        whole = OperatorHarness(make(spec), restored=one)
        whole.push(batch([(key, 4, time) for time in (3, 25, 45) for key in (behind, ahead)]))
        whole.watermark(15)
        whole.watermark(90)
        side = [tuple(row) for row in whole.side_outputs(LATE.tag_id)]
        rows = {tuple(row) for row in whole.outputs()}
        found.append((rows, sorted(side)))
    columns, by_row = found
    assert by_row == columns
    assert by_row[1] == [(ahead, 4)] * (2 if lateness == 0 else 1)
