"""Window and interval joins against a model, over random streams of two sides: random keys (nulls
among them), times, batch cuts, watermarks that differ between subtasks, and rescales (1 -> 2 -> 3).

What a join gives does not depend on the order of arrival, but for which records are late. So the
model keeps the records that were not, and joins them by definition when all is over.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from amounts import examples
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.specs.joins import IntervalJoinSpec, JoinSides, WindowJoinSpec
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.core.key_types import widened_keys
from strom.core.keys import ColumnKey, ExpressionKey
from strom.operators.base import run_to_end
from strom.operators.registry import build_operator
from strom.state.key_groups import key_groups_of

HOWS = ("inner", "left", "right", "full", "semi", "anti")
NAN = float("nan")


@dataclass(frozen=True)
class Keys:
    """A kind of key: the types of its columns on both sides, values, and how they are equal."""

    left: tuple[pa.DataType, ...]
    right: tuple[pa.DataType, ...]
    values: tuple[tuple[Any, ...], ...]
    expression: bool = False

    @property
    def names(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.left))]

    def selector(self) -> Any:
        if self.expression:
            return ExpressionKey(tuple(pl.col(name) + 1 for name in self.names))
        return ColumnKey(tuple(self.names))

    def schema(self, side: int) -> pa.Schema:
        kinds = (self.left, self.right)[side]
        fields = list(zip(self.names, kinds, strict=True))
        return pa.schema([*fields, ("s" if side else "v", pa.string() if side else pa.int64())])

    def equal(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
        return None not in a and a == b


def one(left: pa.DataType, right: pa.DataType, *values: Any, expression: bool = False) -> Keys:
    return Keys((left,), (right,), tuple((v,) for v in values), expression)


KEYS = {
    "int64": one(pa.int64(), pa.int64(), 1, 2, -3, None),
    "int32 and int64": one(pa.int32(), pa.int64(), 1, 2, -3, None),
    "text": one(pa.string(), pa.large_string(), "a", "", "long enough to be out of line", None),
    "views": one(pa.string_view(), pa.string(), "a", "", "long enough to be out of line", None),
    "bytes": one(pa.binary(), pa.binary(), b"a", b"", None),
    "decimals": one(pa.decimal128(5, 1), pa.decimal128(5, 1), Decimal("1.0"), Decimal("2.5"), None),
    "floats": one(pa.float32(), pa.float64(), 0.5, -1.0, None),
    "dictionary": one(pa.dictionary(pa.int32(), pa.string()), pa.string(), "a", "b", None),
    "expression": one(pa.int64(), pa.int64(), 1, 2, None, expression=True),
    "text and int": Keys(
        (pa.string(), pa.int64()), (pa.string(), pa.int32()), (("a", 1), ("a", 2), ("b", None))
    ),
}

RECORD = st.tuples(st.integers(0, 9), st.integers(0, 40))
"""Which of the key's values, and the time."""
STEP = st.one_of(
    st.tuples(st.sampled_from(["left", "right"]), st.lists(RECORD, min_size=1, max_size=8)),
    st.tuples(st.just("watermark"), st.lists(st.integers(-5, 45), min_size=3, max_size=3)),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)


@dataclass
class Run:
    """A join at several subtasks, and the records that were in time, per side: (key, time, row)."""

    bench: Any
    spec: Any
    keys: Keys
    due: Any
    """Whether a record of this time is late at a watermark."""
    accepted: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))
    late: int = 0
    number: int = 0
    out: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)
    dropped: int = 0

    def __post_init__(self) -> None:
        self.tasks = [self.bench.task(self.spec, config=CONFIG)]
        self.clocks = [MIN_TIMESTAMP]
        """The last watermark of each subtask."""
        self.watermarks: dict[int, int] = {}
        """Per key group."""

    def step(self, step: Any) -> None:
        match step:
            case ("left" | "right" as side, records):
                self.push(int(side == "right"), records)
            case ("watermark", marks):
                for subtask, mark in zip(range(len(self.tasks)), marks, strict=False):
                    self.advance(subtask, max(mark, self.clocks[subtask]))
            case ("rescale", parallelism):
                self.collect()
                snapshots = [task.snapshot() for task in self.tasks]
                self.tasks = self.bench.rescale(
                    lambda: build_operator(self.spec), snapshots, parallelism, CONFIG
                )
                self.clocks = [MIN_TIMESTAMP] * parallelism

    def push(self, side: int, records: list[tuple[int, int]]) -> None:
        values = [self.keys.values[i % len(self.keys.values)] for i, _ in records]
        payload = [self.number + i for i in range(len(records))]
        self.number += len(records)
        columns = [list(column) for column in zip(*values, strict=True)]
        columns.append([f"r{n}" if n % 5 else None for n in payload] if side else payload)
        schema = self.keys.schema(side)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        data = pa.RecordBatch.from_arrays(arrays, schema=schema)
        stamps = np.array([ts for _, ts in records], dtype=np.int64)
        batch = ColumnBatch(data, stamps)
        keys = widened_keys(self.keys.selector().key_columns(batch))
        groups = key_groups_of(keys, self.bench.max_parallelism)
        rows = list(zip(*columns, strict=True))
        for row, key, ts, group in zip(rows, values, stamps.tolist(), groups.tolist(), strict=True):
            if not self.due(ts, self.watermarks.get(group, MIN_TIMESTAMP)):
                self.accepted[side].append((key, ts, row))
            else:
                self.late += 1
        for subtask, task in enumerate(self.tasks):
            mine = np.array(
                [
                    i
                    for i, g in enumerate(groups.tolist())
                    if subtask_for(g, len(self.tasks), self.bench.max_parallelism) == subtask
                ],
                dtype=np.int64,
            )
            if len(mine):
                run_to_end(task.operator.process(batch.take(mine), side))

    def advance(self, subtask: int, mark: int) -> None:
        task = self.tasks[subtask]
        self.clocks[subtask] = mark
        run_to_end(task.operator.process_watermark(mark))
        for group in range(task.groups.first, task.groups.last + 1):
            self.watermarks[group] = max(mark, self.watermarks.get(group, MIN_TIMESTAMP))

    def collect(self) -> None:
        for task in self.tasks:
            self.out += results(task.out.events)
            self.dropped += task.out.get_count("numLateRecordsDropped")

    def finish(self) -> None:
        for subtask, task in enumerate(self.tasks):
            self.advance(subtask, MAX_TIMESTAMP)
            for port in (0, 1):
                run_to_end(task.operator.end_input(port))
            run_to_end(task.operator.finish())
        self.collect()


CONFIG = JobConfig(batch_size=2)
LIMIT = 8
"""Results come in batches of at most 4 times the batch size."""


def results(events: list[Any]) -> list[tuple[tuple[Any, ...], int]]:
    """(row, time) of one subtask's output, checked: no record is late, no batch too large."""
    found, mark = [], MIN_TIMESTAMP
    for event in events:
        if isinstance(event, int):
            assert event >= mark, "the watermark went back"
            mark = event
            continue
        assert len(event) <= LIMIT
        assert min(event.timestamps) > mark, "a record came out late"
        found += zip(map(tuple, event.rows()), event.timestamps.tolist(), strict=True)
    return found


def sides_of(keys: Keys, how: str, known: bool) -> JoinSides:
    needed = known or how in ("left", "right", "full")
    schemas = [keys.schema(side) if needed else None for side in (0, 1)]
    equal = () if keys.expression else tuple((n, n) for n in keys.names)
    return JoinSides(keys.selector(), keys.selector(), how, *schemas, equal, "_right")  # type: ignore[arg-type]


def joined(keys: Keys, how: str, lefts: list[Any], rights: list[Any], fits: Any) -> list[Any]:
    """(row, left record or None, right record or None) by definition."""
    pairs = [(a, b) for a in lefts for b in rights if keys.equal(a[0], b[0]) and fits(a, b)]
    met = {id(a) for a, _ in pairs}, {id(b) for _, b in pairs}
    alone = [a for a in lefts if id(a) not in met[0]], [b for b in rights if id(b) not in met[1]]
    match how:
        case "semi":
            return [(a[2], a, None) for a in lefts if id(a) in met[0]]
        case "anti":
            return [(a[2], a, None) for a in alone[0]]
    width = len(keys.names)
    cut = 0 if keys.expression else width
    result = [((*a[2], *b[2][cut:]), a, b) for a, b in pairs]
    if how in ("left", "full"):
        result += [((*a[2], *[None] * (width + 1 - cut)), a, None) for a in alone[0]]
    if how in ("right", "full"):
        for b in alone[1]:
            keys_of = [None] * width if keys.expression else b[2][:width]
            result.append(((*keys_of, None, *b[2][cut:]), None, b))
    return result


def same(found: list[Any], expected: list[Any]) -> None:
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


@settings(max_examples=examples(120), deadline=None)
@given(
    st.sampled_from(HOWS),
    st.sampled_from(list(KEYS)),
    st.booleans(),
    st.sampled_from(
        [
            TumblingEventTimeWindows(10),
            TumblingEventTimeWindows(7, 3),
            SlidingEventTimeWindows(10, 5),
            SlidingEventTimeWindows(10, 3, 1),
            SlidingEventTimeWindows(4, 7, 2),
        ]
    ),
    st.lists(STEP, max_size=14),
)
def test_window_join(
    bench: Any, how: str, name: str, known: bool, assigner: Any, steps: list[Any]
) -> None:
    keys = KEYS[name]

    def late(ts: int, watermark: int) -> bool:
        ends = [window.end - 1 for window in assigner.windows_at(ts)]
        return max(ends, default=ts) <= watermark

    spec = WindowJoinSpec(sides_of(keys, how, known), assigner)
    run = Run(bench, spec, keys, late)
    arrivals: dict[int, tuple[list[Any], list[Any]]] = {}
    for step in steps:
        before = [len(side) for side in run.accepted]
        marks = dict(run.watermarks)
        run.step(step)
        for side in (0, 1):
            for record in run.accepted[side][before[side] :]:
                group = _group(bench, keys, record)
                for window in assigner.windows_at(record[1]):
                    if window.end - 1 > marks.get(group, MIN_TIMESTAMP):
                        arrivals.setdefault(window.end, ([], []))[side].append(record)
    run.finish()
    expected = []
    for end, (lefts, rights) in arrivals.items():
        for row, _, _ in joined(keys, how, lefts, rights, lambda a, b: True):
            expected.append(((*row, end - assigner.size, end), end - 1))
    same(run.out, expected)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(HOWS),
    st.sampled_from(list(KEYS)),
    st.booleans(),
    st.sampled_from([(-5, 5), (0, 0), (0, 12), (-12, -3), (3, 9), (-100, 100), (-1, 0)]),
    st.lists(STEP, max_size=14),
)
def test_interval_join(
    bench: Any, how: str, name: str, known: bool, bounds: tuple[int, int], steps: list[Any]
) -> None:
    keys = KEYS[name]
    lower, upper = bounds
    spec = IntervalJoinSpec(sides_of(keys, how, known), lower, upper)
    run = Run(bench, spec, keys, lambda ts, watermark: ts <= watermark)
    for step in steps:
        run.step(step)
    run.finish()

    def fits(a: Any, b: Any) -> bool:
        return bool(lower <= b[1] - a[1] <= upper)

    expected = []
    for row, left, right in joined(keys, how, *run.accepted, fits):
        stamps = [record[1] for record in (left, right) if record is not None]
        expected.append((row, max(stamps)))
    same(run.out, expected)
    if name != "text and int" and how == "full":
        assert run.dropped == run.late


def _group(bench: Any, keys: Keys, record: Any) -> int:
    schema = pa.schema(list(keys.schema(0))[: len(keys.names)])
    columns = [pa.array([value], f.type) for value, f in zip(record[0], schema, strict=True)]
    batch = ColumnBatch(pa.RecordBatch.from_arrays(columns, schema=schema))
    mine = widened_keys(keys.selector().key_columns(batch))
    return int(key_groups_of(mine, bench.max_parallelism)[0])


def test_a_window_is_not_fired_twice_after_a_rescale(bench: Any) -> None:
    """Two subtasks, one ahead of the other, become one. The slice [5, 10) is still needed for the
    window [5, 15); the keys of the subtask ahead have had [0, 10) from it.

        subtask 0    wm 9    fired [0, 10)
        subtask 1    wm 3
        merged       wm 9    fires [0, 10) for the keys of subtask 1 only
    """
    keys = KEYS["int64"]
    spec = WindowJoinSpec(sides_of(keys, "full", True), SlidingEventTimeWindows(10, 5))
    run = Run(bench, spec, keys, lambda ts, watermark: False)
    run.step(("rescale", 2))
    for side in ("left", "right"):
        run.step((side, [(0, 7), (1, 7), (2, 7)]))
    assert all(task.ctx.keyed_state.buffer("left", keys.schema(0)).get(10)[0] for task in run.tasks)
    run.step(("watermark", [9, 3, 0]))
    run.step(("rescale", 1))
    run.finish()
    found = Counter((row[0], row[-1]) for row, _ in run.out)
    assert found == {(key, end): 1 for key in (1, 2, -3) for end in (10, 15)}
