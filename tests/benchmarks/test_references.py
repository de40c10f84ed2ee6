"""The benchmark's workloads give what their references say: at once, and every way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from strom import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from strom.benchmarks import cli, references, streams, verify, workloads
from strom.benchmarks.measure import Setting
from strom.connectors.datagen import NexmarkSource
from strom.testing.equivalence import Ways, assert_equivalent

NEXMARK = [name for name in workloads.WORKLOADS if name.startswith("q")]
EVENTS = 120_000
"""Twelve seconds of Nexmark: windows begin, overlap and end."""


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_local_host(name: str, parallelism: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEYS", 5_000)
    events = EVENTS if name in ("q5", "q7") else EVENTS // 4
    assert verify.verify(Setting(name, events, parallelism, "local")) == events


def test_every_workload_has_a_reference() -> None:
    assert set(references.REFERENCES) == set(workloads.WORKLOADS)


def test_running_sums_at_parallelism_one_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one source subtask the order is that of the numbers: every sum on the way is known."""
    from strom import StreamExecutionEnvironment

    monkeypatch.setattr(streams, "KEYS", 100)
    env = StreamExecutionEnvironment.get_execution_environment()
    with workloads.kstate(env, 20_000).execute_and_collect() as results:
        assert sorted(map(tuple, results)) == sorted(references.kstate(20_000))


SMALL = 4_000
RATE = 25
GROUP = 50
"""Nearly three minutes of event time; shuffled within 2 s, half of what the watermark allows."""


@pytest.fixture
def slow_bids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events over much time, out of order, for workloads and references alike."""

    def source(events: int) -> NexmarkSource:
        return NexmarkSource(events, rate=RATE, out_of_order_group=GROUP, block=100)

    def engine(env: Any, events: int) -> Any:
        return env.from_source(source(events), workloads.NEXMARK_TIME, "bids")

    def plain(events: int) -> Iterator[dict[str, Any]]:
        yield from source(events).generator()([(0, events)]).data.to_pylist()

    monkeypatch.setattr(workloads, "bids", engine)
    monkeypatch.setattr(references, "bids", plain)


@pytest.mark.parametrize("name", NEXMARK)
def test_nexmark_every_way(name: str, slow_bids: None) -> None:
    expected = list(references.REFERENCES[name].rows(SMALL))
    assert len(expected) > 5
    ways = Ways(batch_size=60)
    assert_equivalent(lambda env: workloads.WORKLOADS[name](env, SMALL), expected, ways)


def test_wordcount_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORDS", 40)
    monkeypatch.setattr(workloads, "BLOCK", 16)
    expected = list(references.wordcount(300))
    assert max(n for _, n in expected) > 5
    assert_equivalent(lambda env: workloads.wordcount(env, 300), expected)


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
    right = list(references.q2(20_000))
    assert verify.differences("q2", 20_000, right) is None
    assert verify.differences("q2", 20_000, reversed(right)) is None
    assert "1 of the reference are missing" in str(verify.differences("q2", 20_000, right[1:]))
    repeated = str(verify.differences("q2", 20_000, [*right, right[0]]))
    assert "1 are not in the reference and 0 of" in repeated
    changed = [(right[0][0], right[0][1] + 1), *right[1:]]
    assert "1 are not in the reference and 1 of" in str(verify.differences("q2", 20_000, changed))


def test_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["q2", "--events", "20000", "--host", "local", "--verify", "--json"]
    options = cli.parser().parse_args(arguments)
    for line in cli.run(options):
        cli.show(line, options.json)
    line = json.loads(capsys.readouterr().out)
    assert line["verified"] is True
    assert line["verified_events"] == 20_000
    wrong = references.Reference(lambda events: [(1, 2)])
    monkeypatch.setitem(references.REFERENCES, "q2", wrong)
    with pytest.raises(SystemExit, match=r"wrong output: q2, 20000 events: .*missing"):
        cli.run(options)
