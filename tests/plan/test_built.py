"""Tasks build what the plan says, and the plan says what `explain()` prints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom import (
    AsyncDataStream,
    EventTimeTrigger,
    PurgingTrigger,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    count,
    count_distinct,
    max_,
    min_,
    stddev,
    sum_,
)
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.base import TriggerResult
from strom.core.config import JobConfig
from strom.core.keys import ColumnKey
from strom.engine.task import chain
from strom.operators import registry
from strom.operators import window_choice as choice
from strom.operators.base import Operator
from strom.operators.registry import build_operator
from strom.operators.row_windows.operator import RowWindowOperator
from strom.plan import choices
from strom.plan.combining_groups import CombineGroupsSpec
from strom.plan.local_combining import LocalCombineSpec, combinable
from strom.plan.window_forms import RowByRow
from strom.plan.windows import window
from strom.testing.equivalence import run_local, run_on_host
from strom.testing.fuzz.cases import Windows
from strom.testing.fuzz.claims import ClaimingProbe, runs_as
from strom.testing.fuzz.drawing import draw_case
from strom.testing.fuzz.running import Disagreement, run_case

ROWS = pa.table({"k": ["a", "b", "a", "c"], "n": [1, 2, 3, 4], "ts": [1, 2, 3, 1500]})
WINDOW = TumblingEventTimeWindows.of(1000)
COUNT = BuiltinWindow((("n", count()),))


def records(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection(ROWS).with_event_time("ts").filter(pl.col("n") > 0)


async def ask(row: Any) -> list[Any]:
    return [row]


async def give(batch: Any) -> Any:
    return batch


def many(env: StreamExecutionEnvironment) -> Any:
    """Operators of all kinds, in one job."""
    stream = records(env)
    keyed = stream.select("k", "n").key_by("k")
    objects = stream.map(lambda row: row)
    left, right = stream.select("k", "n"), stream.select("k", m="n")
    return {
        "window": stream.key_by("k").window(WINDOW).aggregate(n=count(), top=max_("n")),
        "by rows": stream.key_by(lambda row: row.k).window(WINDOW).aggregate(n=sum_("n")),
        "clock": keyed.window(TumblingProcessingTimeWindows.of(1000)).max_by("n"),
        "counted": keyed.count_window(2).aggregate(n=count()),
        "rolling": keyed.sum("n"),
        "rolling text": keyed.max("k"),
        "rolling objects": objects.key_by("k").sum("n"),
        "reduced": keyed.reduce(lambda a, b: b),
        "flat": stream.flat_map(lambda row: [row, row]).filter(lambda row: row.n > 1),
        "batches": stream.map_batches(lambda data: data),
        "asked": AsyncDataStream.unordered_wait(stream, ask, 0),
        "asked in batches": stream.async_map_batches(give),
        "table": keyed.aggregate(n=count()),
        "top": keyed.top_n(1, "n"),
        "joined": left.key_by("k").join(right.key_by("k")),
        "near": stream.key_by("k").interval_join(stream.key_by("k"), -1, 1),
    }


@pytest.mark.parametrize("combining", [True, False])
def test_operators_are_what_explain_says(combining: bool) -> None:
    probe = ClaimingProbe(many)
    config = JobConfig(parallelism=2, local_combining=combining)
    with probe.watched():
        run_on_host(lambda: nullcontext(probe), config)
    assert set(probe.claims.values()) == {
        *("kernel", "rows", "batches"),
        *("kernel or rows", "batches or rows"),
    }


def test_another_operator_than_was_said_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fuzzer, alone and in jobs."""

    def wrong(spec: Any, form: Any = None) -> Any:
        return RowWindowOperator(spec)

    monkeypatch.setattr(choice, "make_window_operator", wrong)
    probe = ClaimingProbe(many)
    config = JobConfig(parallelism=2, local_combining=False)
    said = r"explain\(\) says kernel, but RowWindowOperator"
    with pytest.raises(AssertionError, match=said), probe.watched():
        run_on_host(lambda: nullcontext(probe), config)
    seed = next(s for s in range(50) if isinstance(draw_case(s).operation, Windows))
    with pytest.raises(Disagreement, match=r"explain\(\) says kernel"):
        run_case(draw_case(seed))


def test_every_operator_has_a_choice() -> None:
    """In the table, or in `choose`: there the programs above, and those of test_explained."""
    of_their_own = {
        *("WindowSpec", "RollingSpec", "ExpressionSpec", "MapBatchesSpec", "SourceSpec"),
        *("WatermarkSpec", "LocalCombineSpec", "SinkSpec", "AsyncWaitSpec", "AsyncMapBatchesSpec"),
        *("WatermarkSpec", "LocalCombineSpec", "SinkSpec", "CoMapBatchesSpec", "OneOrderSpec"),
        *("MapSpec", "FilterSpec", "CombineGroupsSpec"),
    }
    table = {spec.__name__ for spec in choices._ALONE}
    assert table | of_their_own == set(registry._OPERATORS)


def test_an_operator_in_no_graph_is_planned_where_it_is_built() -> None:
    spec = WindowSpec(ColumnKey(("k",)), WINDOW, COUNT)
    planned = build_operator(spec, window(spec))
    assert type(build_operator(spec)) is type(planned)
    assert not isinstance(planned, RowWindowOperator)


class Early(EventTimeTrigger):
    """Fires at every record, too."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        super().on_element(element, timestamp, window, ctx)
        return TriggerResult.FIRE


class Empties(PurgingTrigger):
    """What it purges is not known."""


class Later(TumblingEventTimeWindows):
    """Every record in the window after its own."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return super().assign_windows(element, timestamp + self.size, context)


def test_what_a_subclass_of_a_trigger_or_an_assigner_changes_is_done() -> None:
    """Kernels know those that come with strom, and would do what those do."""

    def early(env: StreamExecutionEnvironment) -> Any:
        windows = records(env).key_by("k").window(WINDOW).trigger(Early())
        return windows.aggregate(n=count()).select("k", "n")

    def later(env: StreamExecutionEnvironment) -> Any:
        windows = records(env).key_by("k").window(Later.of(1000))
        return windows.aggregate(n=count()).select("k", "window_start")

    fired = sorted(map(tuple, run_local(early, JobConfig())))
    assert fired == sorted([("a", 1), ("a", 2), ("a", 2), ("b", 1), ("b", 1), ("c", 1), ("c", 1)])
    assert sorted(map(tuple, run_local(later, JobConfig()))) == [
        ("a", 1000),
        ("b", 1000),
        ("c", 2000),
    ]
    for spec in (
        WindowSpec(ColumnKey(("k",)), WINDOW, COUNT, Early()),
        WindowSpec(ColumnKey(("k",)), WINDOW, COUNT, Empties(EventTimeTrigger())),
        WindowSpec(ColumnKey(("k",)), Later.of(1000), COUNT),
    ):
        assert window(spec).form == RowByRow()
        assert not combinable(spec)


TYPED = pa.table(
    {
        "k": ["a", "b", "a", "b"],
        "int": pa.array([1, 2, 3, 4], pa.int32()),
        "float": [1.5, 2.5, 3.5, 4.5],
        "uint64": pa.array([1, 2, 3, 4], pa.uint64()),
        "text": ["p", "q", "r", "s"],
        "coded": pa.array(["p", "q", "r", "s"]).dictionary_encode(),
        "date": pa.array([1, 2, 3, 4], pa.date32()),
        "cost": pa.array([Decimal("1.5")] * 4, pa.decimal128(9, 2)),
        "bool": [True, False, True, False],
        "bytes": [b"p", b"q", b"r", b"s"],
        "ts": [1, 2, 3, 1500],
    }
)

COMBINED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{
        f"max of {name}": (kind, lambda windows, name=name: windows.aggregate(x=max_(name)))
        for name, kind in {
            **dict.fromkeys(("int", "float", "date", "bool"), "kernel"),
            **dict.fromkeys(("uint64", "text", "coded", "cost", "bytes"), "batches"),
        }.items()
    },
    **{
        f"max_by {name}": (kind, lambda windows, name=name: windows.max_by(name))
        for name, kind in {
            **dict.fromkeys(("int", "float", "date", "bool"), "kernel"),
            **dict.fromkeys(("uint64", "text", "coded", "cost", "bytes"), "batches"),
        }.items()
    },
    "sum of uint64": ("kernel", lambda windows: windows.aggregate(x=sum_("uint64"))),
    "min of text made": (
        "batches",
        lambda windows: windows.aggregate(x=min_(pl.col("int").cast(pl.String))),
    ),
    "max of length": (
        "kernel",
        lambda windows: windows.aggregate(x=max_(pl.col("text").str.len_chars())),
    ),
    "count of text": ("kernel", lambda windows: windows.aggregate(x=count("text"))),
    "some of both": (
        "batches",
        lambda windows: windows.aggregate(n=count(), x=max_("int"), y=min_("text")),
    ),
    "sum of floats": ("by senders", lambda windows: windows.aggregate(x=sum_("float"))),
    "sum beside floats": (
        "by senders",
        lambda windows: windows.aggregate(x=sum_("int"), y=max_("float")),
    ),
    "spread": ("by senders", lambda windows: windows.aggregate(x=stddev("int"))),
}

RUNNING: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"distinct {name}": ("kernel", {"n": count_distinct(name)})
        for name in ("int", "float", "date", "bool", "text", "coded", "bytes")
    },
    **{f"distinct {name}": ("batches", {"n": count_distinct(name)}) for name in ("uint64", "cost")},
    "distinct lists": ("batches", {"n": count_distinct(pl.concat_list("int"))}),
    "max of int": ("kernel", {"x": max_("int")}),
    "max of text": ("batches", {"x": max_("text"), "n": count_distinct("int")}),
    "sum of floats": ("kernel", {"x": sum_("float"), "n": count()}),
    "spread": ("kernel", {"x": stddev("int")}),
}


@pytest.mark.parametrize("what", RUNNING)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("senders", [1, 2])
def test_which_running_aggregates_are_combined_is_what_explain_says(
    what: str, known: bool, senders: int
) -> None:
    expected, aggregates = RUNNING[what]
    if senders == 1:
        expected = "batches"

    def build(env: StreamExecutionEnvironment) -> Any:
        stream = env.from_collection(TYPED)
        if not known:
            stream = stream.map_batches(lambda data: data)
        return (
            stream.set_parallelism(senders).key_by("k").aggregate(**aggregates).set_parallelism(2)
        )

    assert_as_said(build, CombineGroupsSpec, expected, known)


@pytest.mark.parametrize("what", COMBINED)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("senders", [1, 2])
def test_what_is_combined_is_what_explain_says(what: str, known: bool, senders: int) -> None:
    """Of the operator ahead of the exchange, by what it did with its batches."""
    expected, use = COMBINED[what]
    expected = expected.replace("by senders", ("batches", "kernel")[senders > 1])

    def build(env: StreamExecutionEnvironment) -> Any:
        stream = env.from_collection(TYPED).with_event_time("ts")
        if not known:
            stream = stream.map_batches(lambda data: data)
        stream = stream.set_parallelism(senders)
        return {"windows": use(stream.key_by("k").window(WINDOW)).set_parallelism(2)}

    assert_as_said(build, LocalCombineSpec, expected, known)


def assert_as_said(build: Any, kind: type, expected: str, known: bool) -> None:
    """The operators of specs of this kind ran as expected, and as was said."""
    ran: list[Operator] = []
    probe = ClaimingProbe(build)
    made = vars(chain)["build_operator"]

    def building(spec: Any, *arguments: Any) -> Operator:
        operator: Operator = made(spec, *arguments)
        if isinstance(spec, kind):
            ran.append(operator)
        return operator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "build_operator", building)
        with probe.watched():
            run_on_host(lambda: nullcontext(probe), JobConfig(parallelism=2))
    (said,) = {probe.claims[str(one.ctx.operator_id)] for one in ran if hasattr(one, "ctx")}
    told = {runs_as(one) for one in ran} - {None}
    assert told == {expected}
    assert said == expected if known else expected in said.split(" or ")
