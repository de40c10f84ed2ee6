"""Windows of built-in functions under a trigger that does what the records say, with snapshots in
between; and a model that folds anew what each window holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
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
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP
from strom.core.ids import KeyGroupRange
from strom.core.state_config import StateConfig
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
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
