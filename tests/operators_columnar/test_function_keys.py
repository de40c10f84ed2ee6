"""Windows keyed by a Python function run on the windowers of column keys, with the same results."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import met
from strom.api.aggregates import (
    approx_count_distinct,
    arg_max,
    collect,
    count,
    count_distinct,
    first,
    largest,
    max_,
    mean,
    min_,
    sum_,
)
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec
from strom.api.windows.continuous_triggers import ContinuousEventTimeTrigger
from strom.api.windows.count_windows import CountSlidingWindowAssigner
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.api.windows.triggers import CountTrigger
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.errors import TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey, FunctionKey
from strom.core.value_types import empty_array
from strom.operators.window_choice import make_window_operator
from strom.operators.windows.operator import WindowOperator
from strom.operators.windows.window_keys import key_array
from strom.state.hashing import stable_hash
from strom.testing.operator_harness import OperatorHarness, regroup

NAN = float("nan")
KEYS: list[Any] = [
    *(None, 7, "a", ("a", 1), ("a", None, (2,)), NAN, ("n", NAN), Decimal("1.5"), b"x"),
    *(dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, tzinfo=dt.UTC), True, 2**70, ()),
]
GROUPS = 16
THIRDS = [KeyGroupRange(0, 4), KeyGroupRange(5, 10), KeyGroupRange(11, 15)]
HALVES = [KeyGroupRange(0, 7), KeyGroupRange(8, 15)]
WHOLE = [KeyGroupRange(0, GROUPS - 1)]
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("v", pa.float64()), ("t", pa.string())])

WINDOWS: dict[str, dict[str, Any]] = {
    "tumbling": {"assigner": TumblingEventTimeWindows.of(10), "allowed_lateness_ms": 15},
    "sliding": {"assigner": SlidingEventTimeWindows.of(12, 4)},
    "ticking": {
        "assigner": TumblingEventTimeWindows.of(20),
        "trigger": ContinuousEventTimeTrigger.of(5),
    },
    "panes": {"assigner": SlidingEventTimeWindows.of(20, 10), "trigger": CountTrigger.of(3)},
    "counted": {"assigner": CountSlidingWindowAssigner.of(4, 2)},
    "sessions": {"assigner": EventTimeSessionWindows.with_gap(4)},
}
FUNCTIONS: dict[str, Any] = {
    "numbers": BuiltinWindow(
        (("c", count()), ("s", sum_("v")), ("m", mean("v")), ("h", max_("v")), ("f", first("n")))
    ),
    "values": BuiltinWindow(
        (
            ("low", min_("t")),
            ("at", arg_max("t", by="v")),
            ("all", collect("n")),
            ("d", count_distinct("t")),
            ("about", approx_count_distinct("t")),
            ("top", largest("t", 2)),
        )
    ),
    "extreme": ExtremeWindow("v", "max", False),
    "ties": ExtremeWindow("t", "min", True),
    "top": TopNWindow(2, (OrderColumn("v", True),), "rank"),
}


def key_of(row: Any) -> Any:
    """A new object each time, as user functions make them."""
    key = KEYS[row["id"]]
    return (*key,) if isinstance(key, tuple) else float(key) if key is NAN else key


def records(count: int, seed: int) -> list[tuple[Any, ...]]:
    """(id, n, v, t, time), about in order of time."""
    rng = random.Random(seed)
    return [
        (
            rng.randrange(len(KEYS)),
            n,
            rng.choice([None, 0.5, 1.0, 2.0, -3.0]),
            rng.choice([None, "x", "yy", "zzz"]),
            n // 6 + rng.randrange(-8, 3),
        )
        for n in range(count)
    ]


def batch(rows: list[tuple[Any, ...]]) -> ColumnBatch:
    *columns, times = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), np.array(times))


def run(spec: WindowSpec, plan: list[Any]) -> list[tuple[Any, ...]]:
    """Records in batches of 40 with a watermark behind each, through so many subtasks at a time;
    from one step of the plan to the next by a snapshot."""
    rows, outputs, watermark = records(480, 3), [], -(2**62)
    share = len(rows) // len(plan)
    snapshots: Any = None
    for step, ranges in enumerate(plan):
        tasks = [
            OperatorHarness(
                make_window_operator(spec),
                config=JobConfig(max_parallelism=GROUPS, batch_size=4),
                max_parallelism=GROUPS,
                key_groups=one,
                restored=None if snapshots is None else regroup(snapshots, one),
            )
            for one in ranges
        ]
        for at in range(step * share, (step + 1) * share, 40):
            some = rows[at : at + 40]
            watermark = max(watermark, some[-1][-1] - 6)
            for task, own in zip(tasks, ranges, strict=True):
                mine = [row for row in some if stable_hash(KEYS[row[0]]) % GROUPS in own]
                if mine:
                    task.push(batch(mine))
                task.watermark(watermark)
                assert isinstance(task.operator, WindowOperator)
                task.operator.validate()
                task.keyed_state.object_keys("").validate()
        if step == len(plan) - 1:
            for task in tasks:
                task.finish()
        snapshots = [task.snapshot() for task in tasks]
        outputs += [tuple(row) for task in tasks for row in task.outputs()]
    return outputs


PLANS = {"whole": [WHOLE], "1-3-2": [WHOLE, THIRDS, HALVES]}


@pytest.mark.parametrize(
    ("window", "function", "tasks"),
    [
        (window, function, tasks)
        for place, window in enumerate(WINDOWS)
        for what, function in enumerate(FUNCTIONS)
        for how, tasks in enumerate(PLANS)
        if met(place, what, how, part=2)
    ],
)
def test_as_by_a_column(window: str, function: str, tasks: str, monkeypatch: Any) -> None:
    """By a function that makes keys of all types, and by a column that numbers them."""
    plan = PLANS[tasks]
    monkeypatch.setattr("strom.state.object_keys.FIRST_LIMIT", 3)
    spec = WindowSpec(ColumnKey(("id",)), function=FUNCTIONS[function], **WINDOWS[window])
    expected = run(spec, [WHOLE] * len(plan))
    made = WindowSpec(FunctionKey(key_of), function=FUNCTIONS[function], **WINDOWS[window])
    if isinstance(spec.function, BuiltinWindow):
        # Keys of several types fit no column, so here they are texts that say what they are.
        made = WindowSpec(
            FunctionKey(lambda row: f"{row['id']}"), function=spec.function, **WINDOWS[window]
        )
        monkeypatch.setattr(f"{__name__}.KEYS", [str(at) for at in range(len(KEYS))])
        expected = [(str(key), *rest) for key, *rest in expected]
    assert len(expected) > 80
    assert Counter(map(repr, run(made, plan))) == Counter(map(repr, expected))


def test_the_key_column_has_the_type_of_the_first_key() -> None:
    spec = WindowSpec(
        FunctionKey(lambda row: (None, "a")[row["id"]] if row["id"] < 2 else "b"),
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("c", count()),)),
    )
    harness = OperatorHarness(spec)
    harness.push(batch([(1, 0, 0.0, "", 1)]))
    harness.watermark(10)
    harness.push(batch([(0, 0, 0.0, "", 11)]))
    again = OperatorHarness(spec, restored=harness.snapshot())
    again.watermark(20)
    for found, key in ((harness, "a"), (again, None)):
        (one,) = found.batches()
        assert one.data.schema.names == ["key", "window_start", "window_end", "c"]
        assert one.data.schema.field("key").type == pa.string()
        assert one.data.column("key").to_pylist() == [key]


def test_of_objects_only_the_fields_that_are_needed_become_columns() -> None:
    spec = WindowSpec(
        FunctionKey(lambda record: record["who"]),
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("c", count()), ("s", sum_("v")))),
    )
    harness = OperatorHarness(spec)
    harness.push([{"who": ("a", 1), "v": 2, "odd": object()}], [1])
    harness.push([{"who": ("a", 1), "v": 3, "odd": {1: object()}, "more": 1}], [2])
    with pytest.raises(TypeMismatchError, match="do not fit one column"):
        harness.watermark(10)
    spec = WindowSpec(FunctionKey(lambda r: "k"), spec.assigner, spec.function)
    harness = OperatorHarness(spec)
    harness.push([{"who": ("a", 1), "v": 2, "odd": object()}], [1])
    harness.push([{"who": ("a", 1), "v": 3, "odd": {1: object()}, "more": 1}], [2])
    harness.watermark(10)
    assert harness.outputs() == [("k", 0, 10, 2, 5)]


def test_counting_needs_no_fields_at_all() -> None:
    spec = WindowSpec(
        FunctionKey(lambda n: "all"),
        TumblingEventTimeWindows.of(10),
        ExtremeWindow("value", "max", False),
    )
    harness = OperatorHarness(spec)
    harness.push([5, 7], [1, 2])
    harness.watermark(10)
    assert harness.outputs() == [(7, 0, 10)]
    named = FunctionKey(lambda record: type(record).__name__)
    spec = WindowSpec(named, spec.assigner, BuiltinWindow((("c", count()),)))
    harness = OperatorHarness(spec)
    harness.push([object(), object(), {}], [1, 2, 3])
    harness.watermark(10)
    assert harness.outputs() == [("object", 0, 10, 2), ("dict", 0, 10, 1)]


def test_a_stream_of_ever_new_keys_does_not_leak() -> None:
    spec = WindowSpec(
        FunctionKey(lambda row: ("user", row["n"])),
        TumblingEventTimeWindows.of(10),
        ExtremeWindow("v", "max", True),
    )
    harness, most = OperatorHarness(spec), 0
    for turn in range(40):
        rows = [(0, turn * 1000 + i, float(i), "t", turn * 10 + i % 10) for i in range(1000)]
        harness.push(batch(rows))
        harness.watermark(turn * 10 + 9)
        most = max(most, len(harness.keyed_state.object_keys("")))
    assert len(harness.outputs()) == 40_000
    assert most < 6000


def test_errors_of_the_key_function_are_its_own() -> None:
    def broken(row: Any) -> Any:
        return {}[row["id"]]

    spec = WindowSpec(FunctionKey(broken), TumblingEventTimeWindows.of(10), FUNCTIONS["numbers"])
    with pytest.raises(KeyError) as caught:
        OperatorHarness(spec).push(batch(records(3, 1)))
    assert caught.traceback[-1].name == "broken"


def test_a_field_that_fits_no_column_is_named() -> None:
    named = FunctionKey(lambda record: "k")
    spec = WindowSpec(named, TumblingEventTimeWindows.of(10), BuiltinWindow((("s", sum_("v")),)))
    with pytest.raises(TypeMismatchError, match="field 'v': value 1 does not fit"):
        OperatorHarness(spec).push([{"v": 1}, {"v": "x"}], [1, 2])
    with pytest.raises(TypeMismatchError, match=r"no column 'v' in \['w'\]"):
        OperatorHarness(spec).push([{"w": 1}], [1])


NOON = dt.datetime(2020, 1, 1, 12)


@pytest.mark.parametrize(
    "keys",
    [
        (dt.date(2020, 1, 1), NOON),
        ((dt.date(2020, 1, 1), 1), (NOON, 1)),
        ("a", b"a"),
        (b"a", "a"),
        (NOON, NOON.replace(tzinfo=dt.UTC)),
        (dt.time(3), dt.time(3, tzinfo=dt.UTC)),
        ("\ud800", "a"),
    ],
    ids=["date", "date in a tuple", "text", "bytes", "zone", "zone of a time", "surrogate"],
)
@pytest.mark.parametrize("columns", [True, False])
def test_keys_that_one_column_would_change_are_refused(keys: Any, columns: bool) -> None:
    spec = WindowSpec(
        FunctionKey(lambda record: keys[record[0]]),
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("c", count()),)),
    )
    harness = OperatorHarness(spec)
    times = list(range(len(keys)))
    if columns:
        data = pa.record_batch({"n": times})
        pushed: tuple[Any, ...] = (ColumnBatch(data, np.array(times)),)
    else:
        pushed = ([(n,) for n in times], times)

    def run() -> None:
        harness.push(*pushed)
        harness.watermark(10)

    with pytest.raises(TypeMismatchError, match="do not fit one column"):
        run()


def test_equal_numbers_of_two_types_are_two_keys() -> None:
    spec = WindowSpec(
        FunctionKey(lambda record: (1, 1.0, 1, 2)[record[0]]),
        TumblingEventTimeWindows.of(10),
        BuiltinWindow((("c", count()),)),
    )
    harness = OperatorHarness(spec)
    harness.push([(n,) for n in range(4)], [1, 2, 3, 4])
    harness.watermark(10)
    assert sorted(harness.outputs()) == [(1, 0, 10, 1), (1, 0, 10, 2), (2, 0, 10, 1)]


def test_keys_in_codes_of_decimals_are_shown_in_them() -> None:
    """Of which pyarrow makes no column of values."""
    codes = pa.dictionary(pa.int8(), pa.decimal128(5, 2))
    made = key_array([Decimal("1.50"), None, Decimal("1.50")], codes)
    assert made.type == codes
    assert made.to_pylist() == [Decimal("1.50"), None, Decimal("1.50")]
    assert empty_array(pa.list_(codes)).type == pa.list_(codes)
