"""Metrics and accumulators that user functions register, in one subtask."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from strom import (
    ConfigurationError,
    LongCounter,
    MapFunction,
    StreamExecutionEnvironment,
    TypeMismatchError,
)
from strom.operators.rows.metric_group import OperatorMetricGroup
from strom.operators.rows.runtime_context import OperatorRuntimeContext
from strom.operators.user_metrics import Rate, UserDistribution, merged_distribution
from strom.testing.operator_harness import OperatorHarness


class Passing(MapFunction):
    def open(self, runtime_context):
        self.context = runtime_context

    def map(self, value):
        return value


@pytest.fixture
def harness():
    env = StreamExecutionEnvironment.get_execution_environment()
    return OperatorHarness.of(env.from_collection([1]).map(Passing()))


def report(harness: OperatorHarness, now_s: float = 0.0) -> dict:
    ctx = harness.operator.ctx
    ctx.user_metrics.validate()
    return ctx.user_metrics.report(ctx.name, ctx.subtask, now_s)


def group_of(harness: OperatorHarness) -> OperatorMetricGroup:
    return OperatorRuntimeContext(harness.operator.ctx, keyed=False).get_metrics_group()


def test_nothing_registered_is_nothing_reported(harness):
    assert report(harness) == {}


def test_a_counter_is_the_same_when_asked_for_twice_and_named_by_its_groups(harness):
    group = group_of(harness)
    group.counter("n").inc(3)
    group.counter("n").dec()
    group.add_group("inner").counter("n").inc(7)
    assert harness.metrics.counts == {"n": 2, "inner.n": 7}
    assert group.counter("n").get_count() == 2


def test_names_and_variables_are_pyflinks(harness):
    group = group_of(harness).add_group("plain").add_group("shop", "berlin")
    name = harness.operator.ctx.name
    assert group.get_scope_components() == [name, "plain", "shop", "berlin"]
    assert group.get_metric_identifier("n") == f"{name}.plain.shop.berlin.n"
    variables = group.get_all_variables()
    assert variables["shop"] == "berlin"
    assert variables["<subtask_index>"] == "0"
    group.meter("n")
    assert report(harness)["scopes"] == {
        "plain.shop.berlin.n": ("plain.shop.n", (("shop", "berlin"),))
    }


def test_a_gauge_is_asked_at_each_report(harness):
    held: list[int] = []
    group_of(harness).gauge("size", lambda: len(held))
    assert report(harness)["user_gauges"] == {"size": 0}
    held.append(1)
    assert report(harness)["user_gauges"] == {"size": 1}


@pytest.mark.parametrize(
    ("value", "reported"),
    [(np.int64(3), 3), (np.float32(0.5), 0.5), (True, True), (np.bool_(1), True), ("on", "on")],
)
def test_what_a_gauge_may_give(harness, value, reported):
    group_of(harness).gauge("g", lambda: value)
    assert report(harness)["user_gauges"] == {"g": reported}
    assert type(report(harness)["user_gauges"]["g"]) is type(reported)


def test_a_gauge_that_fails_is_said_once_and_has_no_value(harness, caplog):
    broken = [True]

    def size():
        if broken:
            raise SystemExit("closed")
        return 5

    group_of(harness).gauge("size", size)
    group_of(harness).gauge("odd", lambda: [1])
    with caplog.at_level(logging.WARNING, "strom"):
        assert report(harness)["user_gauges"] == report(harness)["user_gauges"] == {}
    assert len(caplog.records) == 2
    assert "gauge 'size' failed: SystemExit: closed" in caplog.records[0].getMessage()
    assert "gauge 'odd' gave [1], which is neither a number nor a text" in caplog.text
    broken.clear()
    assert report(harness)["user_gauges"] == {"size": 5}


def test_a_name_of_another_kind_is_said_and_works_unreported(harness, caplog):
    group = group_of(harness)
    group.meter("n").mark_event(4)
    with caplog.at_level(logging.WARNING, "strom"):
        counter = group.counter("n")
        group.distribution("n").update(1)
        group.gauge("n", lambda: 1)
    counter.inc(2)
    assert counter.get_count() == 2
    assert len(caplog.records) == 3
    assert "registers a counter 'n', which is a meter already" in caplog.text
    found = report(harness)
    assert found["meters"]["n"]["count"] == 4
    assert (found["user_gauges"], found["distributions"]) == ({}, {})
    assert harness.metrics.counts == {}


@pytest.mark.parametrize(
    "register",
    [
        lambda group: group.counter(""),
        lambda group: group.add_group(None),
        lambda group: group.add_group("shop", ""),
        lambda group: group.gauge("g", 5),
        lambda group: group.meter("m", 0),
    ],
)
def test_nonsense_is_refused_by_name(harness, register):
    with pytest.raises(ConfigurationError, match=f"operator '{harness.operator.ctx.name}'"):
        register(group_of(harness))


def test_a_meter_counts_and_its_rate_is_of_its_time_span(harness):
    meter = group_of(harness).meter("m", 10)
    start = harness.clock.monotonic()
    rates = []
    for second in range(1, 31):
        meter.mark_event(4 if second <= 15 else 0)
        rates.append(report(harness, start + second)["meters"]["m"]["rate"])
    assert rates[:15] == [4.0] * 15
    assert rates[19] == 2.0  # half of the last ten seconds
    assert rates[24:] == [0.0] * 6
    assert (meter.get_count(), meter.get_rate()) == (60, 0.0)


def test_the_rate_of_a_first_moment_is_not_immense():
    assert Rate(60.0, 100.0).at(100.001, 50) == 50.0


def test_a_rate_keeps_few_counts():
    rate = Rate(60.0, 0.0)
    for step in range(100_000):
        rate.at(step / 100, step)
    assert len(rate._samples) <= 62
    assert rate.at(1000.0, 100_000) == pytest.approx(100.0, rel=0.03)


def test_a_distribution_of_subtasks_together():
    parts, values = [], [list(range(100)), [1000.5], []]
    for some in values:
        one = UserDistribution()
        for value in some:
            one.update(value)
        parts.append(one.report())
    found = merged_distribution(parts)
    flat = [value for some in values for value in some]
    assert (found["count"], found["sum"]) == (101, sum(flat))
    assert (found["min"], found["max"]) == (0, 1000.5)
    assert found["mean"] == pytest.approx(np.mean(flat))
    assert found["p50"] == np.quantile(flat, 0.5)
    assert found["p99"] == np.quantile(flat, 0.99)


def test_an_empty_distribution():
    found = merged_distribution([UserDistribution().report()])
    assert (found["count"], found["sum"], found["min"], found["p50"]) == (0, 0, None, None)


def test_quantiles_are_of_the_latest_values():
    one = UserDistribution()
    for value in [10**6] * 1000 + [1] * 512:
        one.update(value)
    found = merged_distribution([one.report()])
    assert (found["p99"], found["max"], found["count"]) == (1, 10**6, 1512)


def test_accumulators_of_a_subtask_have_one_name_each(harness):
    context = OperatorRuntimeContext(harness.operator.ctx, keyed=False)
    lines = LongCounter()
    context.add_accumulator("lines", lines)
    assert context.get_accumulator("lines") is lines
    assert context.get_accumulator("words") is None
    with pytest.raises(ConfigurationError, match="has an accumulator 'lines' already"):
        context.add_accumulator("lines", LongCounter())
    with pytest.raises(TypeMismatchError, match="'words' must be an Accumulator"):
        context.add_accumulator("words", 5)
