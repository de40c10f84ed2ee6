"""The benchmarks' workloads give what their references say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drawn_ways import assert_equivalent
from strom import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from strom.benchmarks import references, streams, verify, workloads
from strom.benchmarks.measure import Setting
from strom.benchmarks.nexmark.registry import NEXMARK, NEXMARK_ROWS
from strom.benchmarks.workloads import WORKLOADS

EVENTS = 40_000
"""Four seconds of Nexmark: not a whole window."""

RECORD_BY_RECORD = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")
"""Of more events they say no more."""

TWELVE_SECONDS = 120_000
"""Windows begin, overlap and end."""

LONG = [name for name in NEXMARK if name not in RECORD_BY_RECORD]


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in LONG])
def test_local_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEYS", 5_000)
    assert verify.verify(Setting(name, EVENTS, 2, "local")) == EVENTS


OF_EACH_KIND = ("q3", "q5", "q8", "q9", "q11", "q16", "q18", "q20")
"""Joins with and without windows, windows, sessions, distinct values, the last of each key."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OF_EACH_KIND else [pytest.mark.soak]) for name in LONG],
)
def test_many_events(name: str) -> None:
    """`benchmarks nexmark all --verify` takes a million."""
    assert verify.verify(Setting(name, TWELVE_SECONDS, 2, "local")) == TWELVE_SECONDS


def test_every_query_is_there() -> None:
    assert set(NEXMARK) == {"q7c", *(f"q{i}" for i in range(24))}
    assert len(NEXMARK_ROWS) >= 6
    assert {name.removesuffix("_rows") for name in NEXMARK_ROWS} <= set(NEXMARK)


@pytest.mark.parametrize("name", NEXMARK)
def test_what_the_registry_says_of_a_query(name: str) -> None:
    """The streams it reads, the columns it gives, whether it changes what it gave."""
    from strom import StreamExecutionEnvironment

    query = NEXMARK[name]
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = query.build(env, TWELVE_SECONDS if name in ("q5", "q7", "q7c", "q8") else 5_000)
    with stream.execute_and_collect() as results:
        first = next(iter(results))
    env = StreamExecutionEnvironment.get_execution_environment()
    query.build(env, 100).print()
    operators = [o for vertex in env.get_job_graph().vertices for o in vertex.operators]
    sources = [o.spec.source for o in operators if o.is_source]
    kinds = {source.kind for source in sources if hasattr(source, "kind")}
    assert kinds == set(query.kinds)
    assert first._fields == (*query.columns, *(["__row_kind"] if query.changelog else []))
    assert query.summary.endswith((".", "changelog."))


def test_running_sums_at_parallelism_one_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one source subtask the order is that of the numbers: every sum on the way is known."""
    from strom import StreamExecutionEnvironment

    monkeypatch.setattr(streams, "KEYS", 100)
    env = StreamExecutionEnvironment.get_execution_environment()
    with workloads.kstate(env, 20_000).execute_and_collect() as results:
        assert sorted(map(tuple, results)) == sorted(references.kstate(20_000))


@pytest.mark.parametrize("build", [workloads.wordcount, workloads.wordcount_columns])
def test_wordcount_every_way(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORDS", 40)
    monkeypatch.setattr(workloads, "BLOCK", 16)
    expected = list(references.wordcount(300))
    assert max(n for _, n in expected) > 5
    assert_equivalent(lambda env: build(env, 300), expected)


class Totals(KeyedProcessFunction):
    """`references.totals` in strom: given out when event time ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("held"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        n, greatest = self.held.value() or (0, 0)
        self.held.update((n + 1, max(greatest, value.v)))
        ctx.timer_service().register_event_time_timer(2**60)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield (ctx.get_current_key(), *self.held.value())


def test_running_sums_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEYS", 40)
    monkeypatch.setattr(workloads, "BLOCK", 16)
    expected = list(references.totals(references.kstate(300)))
    assert max(n for _, n, _ in expected) > 5

    def build(env: Any) -> Any:
        return workloads.kstate(env, 300).key_by("k").process(Totals())

    assert_equivalent(build, expected)


def test_wrong_outputs_are_found() -> None:
    query = WORKLOADS["q2"]
    right = list(query.reference(20_000))
    assert verify.differences(query, 20_000, right) is None
    assert verify.differences(query, 20_000, reversed(right)) is None
    assert "1 of the reference are missing" in str(verify.differences(query, 20_000, right[1:]))
    repeated = str(verify.differences(query, 20_000, [*right, right[0]]))
    assert "1 are not in the reference and 0 of" in repeated
    changed = [(right[0][0], right[0][1] + 1), *right[1:]]
    assert "1 are not in the reference and 1 of" in str(verify.differences(query, 20_000, changed))


def test_wrong_changelogs_are_found() -> None:
    """A row that is added and taken away is not there; one that is taken away twice is an error."""
    query = replace(WORKLOADS["q2"], changelog=True)
    right = [(*row, 0) for row in query.reference(20_000)]
    passing = [(7, 7, 0), (7, 7, 1), (8, 8, 2), (8, 8, 3)]
    assert verify.differences(query, 20_000, [*passing[:2], *right, *passing[2:]]) is None
    assert "1 are not in the reference" in str(
        verify.differences(query, 20_000, [*right, passing[0]])
    )
    with pytest.raises(ValueError, match="1 times more than it adds it"):
        verify.differences(query, 20_000, [*right, passing[1]])
