"""Aggregates declared outside the package: what they are refused for, and what is said of them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from strom import StreamExecutionEnvironment
from strom.api import aggregate_kinds
from strom.api.aggregate_kinds import AggregateKind, Exact, same
from strom.api.aggregates import Aggregate, count, max_, mean, min_, sum_, variance
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.errors import GraphError, StateError, TypeMismatchError
from strom.core.keys import ColumnKey
from strom.operators.aggregates import registry
from strom.operators.aggregates.base import Use
from strom.operators.aggregates.flat import Count, Extreme
from strom.operators.combining.choice import make_local_combine
from strom.plan.combining_types import combining, foretold, needs_order
from strom.plan.local_combining import LocalCombineSpec
from strom.testing.operator_harness import OperatorHarness

SCHEMA = pa.schema([("k", pa.int64()), ("i", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
WINDOW = TumblingEventTimeWindows(10)


class Keeps(Extreme):
    """Of numbers, as by default."""


class InOrder(Extreme):
    """Depends on the order of records."""

    combinable = False


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered here is unknown to other tests."""
    for module, name in (
        (aggregate_kinds, "_BY_NAME"),
        (aggregate_kinds, "_SUITS"),
        (registry, "_ACCUMULATORS"),
    ):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


def register(name: str = "most", accumulator: Any = Keeps, **said: Any) -> None:
    registry.register(AggregateKind(name, same, running=True, **said), [accumulator])


def most(column: str, name: str = "most") -> Aggregate:
    return Aggregate(name, column)


def spec_of(*aggregates: Aggregate, assigner: Any = WINDOW) -> WindowSpec:
    named = tuple((f"a{at}", one) for at, one in enumerate(aggregates))
    return WindowSpec(ColumnKey(("k",)), assigner, BuiltinWindow(named))


def batch() -> ColumnBatch:
    data = pa.record_batch([[1, 1], [2, 3], [0.5, 1.5], ["a", "b"]], schema=SCHEMA)
    return ColumnBatch(data, np.array([1, 2]))


@pytest.mark.parametrize("assigner", [WINDOW, EventTimeSessionWindows.with_gap(4)])
def test_a_window_refuses_values_that_nothing_keeps(assigner: Any) -> None:
    register()
    harness = OperatorHarness(spec_of(count(), most("s"), assigner=assigner))
    why = r"window operator '.+': most\(s\): nothing keeps 'most' of values of type string; cast"
    with pytest.raises(TypeMismatchError, match=why):
        harness.push(batch())


def test_a_program_is_refused_where_the_type_is_known() -> None:
    register()
    env = StreamExecutionEnvironment.get_execution_environment()
    records = env.from_collection(pa.table({"k": [1], "s": ["a"], "v": [1]})).with_event_time("v")
    with pytest.raises(GraphError, match="nothing keeps 'most' of values of type string"):
        records.key_by("k").window(WINDOW).aggregate(m=most("s"))
    with pytest.raises(GraphError, match="nothing keeps 'most' of values of type string"):
        records.key_by("k").aggregate(m=most("s"))
    records.key_by("k").window(WINDOW).aggregate(m=most("v"))


def test_over_takes_no_declared_kind() -> None:
    """It would have taken the first or last value for it."""
    with pytest.raises(GraphError, match=r"'most' cannot be declared with over=True: over has \["):
        register(over=True)
    register()  # it was not taken in


def test_what_says_that_it_combines_has_to_be_combinable() -> None:
    with pytest.raises(GraphError, match="'most' is declared with combines=True, but InOrder"):
        register(accumulator=InOrder, combines=True)
    register(accumulator=InOrder)


@pytest.mark.parametrize("exact", ["always", "without floats", "never"])
@pytest.mark.parametrize("senders", [1, 2])
@pytest.mark.parametrize("column", ["i", "f", "s"])
def test_plan_foretells_what_local_combining_does(exact: Exact, senders: int, column: str) -> None:
    register(combines=True, exact=exact)
    alone = [count(column), min_(column), max_(column), most(column)]
    alone += [] if column == "s" else [sum_(column), mean(column), variance(column)]
    for one in alone:
        for function in ([one], [count(), one], [one, max_("i")]):
            spec = spec_of(*function)
            if needs_order(spec, senders) is not None:
                assert senders == 1
                assert one.kind == "variance" or exact == "never"
                continue
            told = foretold(combining(spec, senders), spec, senders, SCHEMA)
            assert told is not None
            local = make_local_combine(LocalCombineSpec(spec))
            harness = OperatorHarness(local)
            harness.context.parallelism = senders
            harness.push(batch())
            # where nothing keeps the values the records go on to the window, which says so
            assert (told.kind == "kernel") is bool(cast(Any, local).combines), one.describe()


def test_from_a_single_sender_an_inexact_kind_keeps_to_its_order() -> None:
    register(combines=True)
    register("exact", combines=True, exact="always")
    assert needs_order(spec_of(most("i")), 1) == "from a single sender, most depends on the order"
    assert needs_order(spec_of(most("i")), 2) is None
    assert needs_order(spec_of(most("i", "exact")), 1) is None
    made = combining(spec_of(most("i", "exact")), 1)
    assert "exact(i) is of numbers or times" in made.remarks[0]


def test_an_accumulator_that_shares_values_is_not_made_alone() -> None:
    kind = pa.list_(pa.int64())
    assert registry.accumulator_class(Aggregate("count_distinct", "v"), kind, Use.GROUPS)
    with pytest.raises(StateError, match=r"count_distinct\(v\) of values of type .* shares them"):
        registry.make_accumulator(Aggregate("count_distinct", "v"), "a0", kind, Use.GROUPS)
    assert registry.make_accumulator(count("v"), "a0", kind, Use.GROUPS) == Count(
        count("v"), "a0", kind, Use.GROUPS
    )
