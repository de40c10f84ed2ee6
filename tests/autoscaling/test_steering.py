"""The autoscaler at the wheel: when it looks, what it asks for, and what became of that. Times are
ms; the autoscaler's are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from strom.autoscaling.autoscaler import Autoscaler
from strom.autoscaling.samples import Sample, Totals
from strom.autoscaling.shape import Vertex, chain_of
from strom.autoscaling.steering import MOST_ACTS, Outcome, Stage, Steering
from strom.autoscaling.verdicts import Decision, Reason, Verdict
from strom.core.autoscaler_config import AutoscalerConfig
from strom.core.ids import VertexId

A = VertexId("a")
EMPTY = Sample(0.0, 0, {}, {})


@dataclass
class Wishes:
    """A scaler that wants what it is told, and remembers what it hears."""

    wants: int | None = None
    heard: list[tuple[Any, ...]] = field(default_factory=list)

    def observe(self, sample: Sample) -> Decision:
        after = 1 if self.wants is None else self.wants
        return Decision(sample.at_s, (Verdict(A, "Map", Reason.UP, 1, after, 9.0),))

    def rescaling(self, at_s: float, decision: Decision) -> None:
        self.heard.append(("rescaling", at_s, dict(decision.changes)))

    def began(self, at_s: float, attempt: int) -> None:
        self.heard.append(("began", at_s, attempt))

    def failed(self, at_s: float, why: str) -> None:
        self.heard.append(("failed", at_s, why))


class Wheel(Steering):
    """Looks at nothing, and is right after each event."""

    def __init__(self, scaling: bool = True) -> None:
        self.scaler = Wishes()
        config = AutoscalerConfig(interval=timedelta(seconds=1), scaling=scaling)
        super().__init__(config, self.scaler)

    def heard(self) -> list[tuple[Any, ...]]:
        """Since it was asked last."""
        self.validate()
        heard, self.scaler.heard = self.scaler.heard, []
        return heard

    def see(self, now_ms: int, wants: int | None, why_not: str | None = None) -> Any:
        self.scaler.wants = wants
        act = self.look(EMPTY, now_ms, why_not)
        self.validate()
        return act


def outcomes(wheel: Wheel) -> list[Outcome]:
    return [act.outcome for act in wheel.acts]


def test_it_looks_every_interval_while_all_tasks_run() -> None:
    wheel = Wheel()
    assert (wheel.stage, wheel.due_ms) == (Stage.AWAY, None)
    wheel.on_running(500, 0)
    assert wheel.heard() == [("began", 0.5, 0)]
    wheel.on_running(700, 0)
    assert wheel.heard() == []
    assert (wheel.stage, wheel.due_ms) == (Stage.WATCHING, 1_500)
    assert wheel.see(1_500, None) is None
    assert wheel.due_ms == 2_500
    wheel.on_interrupted()
    assert (wheel.stage, wheel.due_ms) == (Stage.AWAY, None)
    wheel.on_running(9_000, 1)
    assert wheel.heard() == [("began", 9.0, 1)]
    assert wheel.due_ms == 10_000


def test_a_rescale_that_is_done() -> None:
    wheel = Wheel()
    wheel.on_running(0, 0)
    act = wheel.see(1_000, 3)
    assert act.outcome is Outcome.ASKED
    assert act.explain().startswith("Map: 1 -> 3: 9/s are to be handled")
    assert (wheel.stage, wheel.due_ms) == (Stage.ASKING, None)
    assert wheel.heard() == [("began", 0.0, 0), ("rescaling", 1.0, {A: 3})]
    wheel.on_interrupted()
    wheel.on_running(4_000, 1)
    assert wheel.heard() == [], "the answer says whether it was this"
    done = wheel.on_rescaled(4_001)
    assert (done.outcome, done.at_ms, done.ended_ms) == (Outcome.DONE, 1_000, 4_001)
    assert wheel.heard() == [("began", 4.0, 1)]
    assert wheel.due_ms == 5_001
    assert done.plain()["outcome"] == "DONE"
    assert done.plain()["vertices"][0]["wanted"] == 3


def test_a_rescale_that_fails_while_the_job_goes_on_as_it_was() -> None:
    wheel = Wheel()
    wheel.on_running(0, 0)
    wheel.see(1_000, 3)
    wheel.heard()
    failed = wheel.on_failed(2_000, "there is no room")
    assert (failed.outcome, failed.why) == (Outcome.FAILED, "there is no room")
    assert wheel.heard() == [("failed", 2.0, "there is no room")]
    assert (wheel.stage, wheel.due_ms) == (Stage.WATCHING, 3_000)


def test_a_rescale_from_which_the_job_returns() -> None:
    wheel = Wheel()
    wheel.on_running(0, 0)
    wheel.see(1_000, 3)
    wheel.on_interrupted()
    wheel.on_failed(2_000, "it did not come up")
    assert (wheel.stage, wheel.due_ms) == (Stage.AWAY, None)
    wheel.on_running(3_000, 2)
    assert wheel.heard()[2:] == [("failed", 2.0, "it did not come up"), ("began", 3.0, 2)]


def test_parts_that_begin_again_before_a_rescale_are_not_taken_for_it() -> None:
    wheel = Wheel()
    wheel.on_running(0, 0)
    wheel.see(1_000, 3)
    wheel.heard()
    wheel.on_interrupted()
    wheel.on_running(1_500, 1)
    assert wheel.heard() == []
    wheel.on_failed(2_000, "a part of the job failed meanwhile")
    assert wheel.heard() == [
        ("failed", 2.0, "a part of the job failed meanwhile"),
        ("began", 1.5, 1),
    ]
    wheel.see(4_000, 3)
    wheel.on_interrupted()
    wheel.on_running(5_000, 2)
    wheel.on_rescaled(5_000)
    assert wheel.heard() == [("rescaling", 4.0, {A: 3}), ("began", 5.0, 2)]
    assert outcomes(wheel) == [Outcome.FAILED, Outcome.DONE]


def test_what_is_declined_is_said_once_and_counted() -> None:
    wheel = Wheel()
    wheel.on_running(0, 0)
    busy = "the job is being stopped with a savepoint"
    first = wheel.see(1_000, 3, busy)
    assert (first.outcome, first.why) == (Outcome.DECLINED, busy)
    assert wheel.see(2_000, 3, busy) is None
    (act,) = wheel.acts
    assert (act.at_ms, act.times, act.ended_ms) == (1_000, 2, None)
    assert wheel.heard() == [("began", 0.0, 0)]
    assert wheel.see(3_000, 4, busy).decision.changes == {A: 4}, "another decision"
    assert wheel.see(4_000, None) is None
    assert wheel.see(5_000, 4, busy) is not None, "not one look after the other"
    assert wheel.see(6_000, 4).outcome is Outcome.ASKED
    assert [act.times for act in wheel.acts] == [2, 1, 1, 1]


def test_advice_is_not_carried_out() -> None:
    wheel = Wheel(scaling=False)
    wheel.on_running(0, 0)
    assert wheel.see(1_000, 3).outcome is Outcome.ADVICE
    assert wheel.see(2_000, 3) is None
    assert (wheel.stage, wheel.due_ms) == (Stage.WATCHING, 3_000)
    assert wheel.heard() == [("began", 0.0, 0)]


def test_the_last_acts_are_known() -> None:
    wheel = Wheel(scaling=False)
    wheel.on_running(0, 0)
    for n in range(2 * MOST_ACTS):
        wheel.see(1_000 + n, 2 + n % 2)
    assert len(wheel.acts) == MOST_ACTS
    assert wheel.acts[-1].at_ms == 1_000 + 2 * MOST_ACTS - 1


def test_what_it_must_not_be_told() -> None:
    wheel = Wheel()
    with pytest.raises(AssertionError):
        wheel.look(EMPTY, 0, None)
    with pytest.raises(AssertionError):
        wheel.on_rescaled(0)
    wheel.on_running(0, 0)
    with pytest.raises(AssertionError):
        wheel.on_failed(0, "nothing")


def test_with_the_autoscaler_it_backs_off_twice_as_long_each_time() -> None:
    """A job that needs two subtasks, and never gets them."""
    config = AutoscalerConfig(
        interval=timedelta(seconds=1),
        metrics_window=timedelta(seconds=5),
        stabilization=timedelta(seconds=4),
    )
    scaler = Autoscaler(config, chain_of([Vertex(A, "Map")]))
    steering = Steering(config, scaler)
    steering.on_running(0, 0)
    asked = []
    for second in range(1, 60):
        sample = Sample(second, 0, {A: Totals(100 * second, (1_000.0 * second,))}, {})
        if steering.due_ms == second * 1000:
            act = steering.look(sample, second * 1000, None)
            if act is not None and act.outcome is Outcome.ASKED:
                assert dict(act.decision.changes) == {A: 2}
                asked.append(second)
                steering.on_failed(second * 1000, "there is no room")
        steering.validate()
        scaler.memory.validate()
    assert asked == [9, 13, 21, 37]
