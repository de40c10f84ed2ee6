"""Random operators with their settings, and the arguments of their functions."""

from __future__ import annotations

import random
from math import isfinite
from typing import Any

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.streams.keyed_tables import offered_by
from ...api.windows.base import Trigger, WindowAssigner
from ...api.windows.continuous_triggers import ContinuousEventTimeTrigger
from ...api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from ...api.windows.session_windows import EventTimeSessionWindows
from ...api.windows.time_windows import (
    CumulateEventTimeWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from ...api.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from ...core.row_kind import ROW_KIND
from .cases import CONDITIONS, Case, Table, Windows, plain_list


def draw_windows(rng: random.Random) -> Windows:
    what = rng.choice(["aggregate"] * 5 + ["extreme", "top_n"])
    lateness = rng.choice([0, 0, 0, 5, 40])
    trigger: Trigger | None = None
    offset = rng.choice([0, 0, 1, -3])
    assigner: WindowAssigner
    match rng.choice(
        ["tumble", "slide", "gaps", "cumulate", "session", "session", "count", "global"]
    ):
        case "tumble":
            assigner = TumblingEventTimeWindows.of(rng.choice([4, 10, 50]), offset)
        case "slide":
            slide = rng.choice([4, 5, 7, 20])
            assigner = SlidingEventTimeWindows.of(
                slide * rng.choice([1, 2, 3]) + rng.choice([0, 2]), slide, offset
            )
        case "gaps":
            assigner = SlidingEventTimeWindows.of(4, 10, offset)
        case "cumulate":
            step = rng.choice([4, 5, 20])
            assigner = CumulateEventTimeWindows.of(step * rng.choice([1, 2, 4]), step, offset)
        case "session":
            assigner = EventTimeSessionWindows.with_gap(rng.choice([1, 3, 10, 30]))
        case "count":
            size, slide = rng.choice([1, 2, 3, 7]), rng.choice([0, 1, 2, 5])
            tumbling = CountTumblingWindowAssigner.of(size)
            assigner = CountSlidingWindowAssigner.of(size, slide) if slide else tumbling
            lateness = 0
        case _:
            assigner, lateness = GlobalWindows.create(), 0
            trigger = CountTrigger.of(rng.choice([1, 2, 3, 5]))
            trigger = PurgingTrigger.of(trigger) if rng.random() < 0.5 else trigger
    if assigner.is_event_time() and rng.random() < 0.25:
        trigger = _draw_trigger(rng)
    return Windows(assigner, trigger, lateness, rng.random() < 0.3, what, keyed=rng.random() < 0.85)


def _draw_trigger(rng: random.Random) -> Trigger:
    inner: Trigger = rng.choice(
        [
            EventTimeTrigger(),
            ContinuousEventTimeTrigger.of(rng.choice([3, 10])),
            CountTrigger.of(rng.choice([1, 2, 4])),
        ]
    )
    return PurgingTrigger.of(inner) if rng.random() < 0.4 else inner


def draw_table(rng: random.Random) -> Table:
    what = rng.choice(["aggregate", "aggregate", "top_n", "deduplicate", "over", "rolling"])
    frame = rng.choice(["rows", "range", "all"]) if what == "over" else ""
    return Table(
        what,
        upsert=rng.random() < 0.3,
        keep=rng.choice(["first", "last"]),
        rows=rng.choice([1, 2, 5]) if frame == "rows" else None,
        range_ms=rng.choice([0, 3, 20]) if frame == "range" else None,
        arrival=frame != "range" and rng.random() < 0.4,
        rolling=rng.choice(["sum", "min", "max", "min_by", "max_by"]),
        ttl=rng.random() < 0.3,
    )


def draw_arguments(rng: random.Random, case: Case) -> None:
    operation = case.operation
    values = [name for name in case.data.schema.names if name not in ("ts", ROW_KIND)]
    case.field = rng.choice(values)
    case.largest, case.ties = rng.random() < 0.5, rng.random() < 0.5
    case.n = rng.choice([1, 2, 3, 40])
    order = [(name, rng.random() < 0.5) for name in rng.sample(values, rng.choice([1, 1, 2]))]
    merges = isinstance(operation, Windows) and isinstance(
        operation.assigner, EventTimeSessionWindows
    )
    if (merges or case.changelog) and "n" not in dict(order):
        order.append(("n", False))
    case.order = tuple(order)
    if isinstance(operation, Table) and operation.what == "deduplicate" and not case.changelog:
        case.order = case.order if rng.random() < 0.6 else ()
    case.rank = "place" if rng.random() < 0.5 else None
    if isinstance(operation, Table) and operation.what == "rolling":
        by = operation.rolling == "sum"
        case.field = rng.choice(["a0", "n"]) if by else case.field
        if by and not _sum_fits(case.data.column(case.field)):
            case.field = "n"
    if operation.what in ("aggregate", "over"):
        case.aggregates = dict(_draw_aggregates(rng, case))


def _sum_fits(column: pa.Array) -> bool:
    """Whether sums of these values are of their type, as a rolling sum's must be."""
    kind = column.type
    if not pa.types.is_integer(kind):
        return True
    most = 1 << (kind.bit_width - pa.types.is_signed_integer(kind))
    return bool(sum(abs(int(v)) for v in column.to_pylist() if v is not None) < most)


_ALL_KINDS = (
    *("count", "sum", "min", "max", "mean", "first", "last", "variance", "stddev"),
    *("arg_min", "arg_max", "count_distinct", "approx_count_distinct", "collect"),
    *("largest", "smallest"),
)
_ON_SLOTS = _ALL_KINDS[:11]
"""A fixed number of values each: what sessions and counts keep in columns."""
_ORDERLESS = ("count", "sum", "min", "max", "mean", "variance", "count_distinct")
SMALL = 2**17
"""Values beyond it are not squared: the digits that are lost depend on the order of additions."""


def _draw_aggregates(
    rng: random.Random, case: Case
) -> list[tuple[str, tuple[Aggregate, str | None]]]:
    kinds: list[str] = list(_ALL_KINDS)
    if isinstance(case.operation, Table):
        offered = offered_by("over" if case.operation.what == "over" else "aggregate")
        kinds = [kind for kind in offered if kind in _ALL_KINDS]
    if case.changelog:
        kinds = [kind for kind in kinds if kind in _ORDERLESS]
    some = rng.random()
    if some < 0.6:
        kinds = [kind for kind in kinds if kind in (_ORDERLESS[:6] if some < 0.2 else _ON_SLOTS)]
    drawn = [rng.choice(kinds) for _ in range(rng.choice([1, 2, 4]))]
    return [
        (f"r{i}", (_draw_aggregate(rng, case, kind), rng.choice([None, None, *CONDITIONS])))
        for i, kind in enumerate(drawn)
    ]


def _draw_aggregate(rng: random.Random, case: Case, kind: Any) -> Aggregate:
    kinds = {name: case.data.schema.field(name).type for name in ("v0", "v1", "a0", "n", "k0")}
    columns = list(kinds)
    if _needs_numbers(case, kind):
        columns = [name for name, type_ in kinds.items() if _is_number(type_)]
    column = rng.choice(columns)
    number = {"largest": rng.choice([1, 3, 20]), "smallest": rng.choice([1, 3, 20])}
    number |= {"approx_count_distinct": rng.choice([4, 12]), "variance": rng.choice([0, 1])}
    number["stddev"] = number["variance"]
    if kind == "count" and rng.random() < 0.5:
        return Aggregate(kind)
    if kind in ("sum", "mean", "variance", "stddev"):
        squared = kind in ("variance", "stddev")
        fits = [c for c in ("a0", "n") if c in columns and (not squared or _small(case.data, c))]
        column = rng.choice(fits)
    by = rng.choice([c for c in columns if c != "k0"]) if kind.startswith("arg_") else None
    return Aggregate(kind, column, by=by, number=number.get(kind, 0))


def draw_nested_aggregate(
    rng: random.Random, case: Case, column: str
) -> tuple[Aggregate, str | None] | None:
    """One, and its condition, that takes values of every type; None where there are no others."""
    operation = case.operation
    if not case.aggregates or operation.what not in ("aggregate", "over"):
        return None
    kinds = ["count"] if case.changelog else ["count", "first", "last"]
    if isinstance(operation, Windows):
        kinds += ["arg_min", "arg_max", "collect"]
    elif _needs_numbers(case, "first"):
        kinds = ["count"]
    if pa.types.is_null(case.data.schema.field(column).type):
        kinds = ["count"]  # of what else the type would not be known
    kind: Any = rng.choice(kinds)
    by = rng.choice(["v0", "a0", "n"]) if kind.startswith("arg_") else None
    return Aggregate(kind, column, by=by), rng.choice([None, *CONDITIONS])


def _needs_numbers(case: Case, kind: str) -> bool:
    """Tables keep these of numbers, times and booleans only."""
    operation = case.operation
    if not isinstance(operation, Table):
        return False
    if operation.what == "over":
        return operation.rows is None and operation.range_ms is None
    return kind in ("first", "last", "arg_min", "arg_max")


def _is_number(type_: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_temporal, pa.types.is_boolean)
    return type_ != pa.uint64() and any(test(type_) for test in tests)


def _small(data: pa.RecordBatch, name: str) -> bool:
    values = (abs(v) for v in plain_list(data.column(name)) if v is not None and isfinite(v))
    return max(values, default=0) <= SMALL


def expressible(case: Case) -> bool:
    """Whether polars takes the key columns as they are."""
    odd = (
        pa.types.is_float16,
        pa.types.is_fixed_size_binary,
        pa.types.is_decimal,
        pa.types.is_dictionary,
        pa.types.is_date64,
    )
    return not any(check(case.data.schema.field(name).type) for check in odd for name in case.key)
