"""What a client does without a coordinator, and through random lives of sessions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from strom.cluster.following import AWAY_MS, Attach, Following, GiveUp, Over, Step, Wait
from strom.cluster.records import JobRecord, Phase
from strom.core.job_status import JobStatus

QUEUED = JobRecord("a1", "one", 2.0, 2, False, 60_000, 1, checkpoints="memory://x")
RUNNING = replace(QUEUED, phase=Phase.RUNNING)
ENDED = replace(RUNNING, phase=Phase.ENDED, status=JobStatus.FINISHED)


def test_what_waits_is_said_once_and_followed_once_it_runs() -> None:
    following = Following("job 'one' (a1)")
    assert following.told(QUEUED, "it needs 2 CPUs") == Wait(
        "strom: job 'one' (a1) waits: it needs 2 CPUs"
    )
    assert following.told(QUEUED, "it needs 2 CPUs") == Wait()
    assert following.told(replace(QUEUED, phase=Phase.STARTING), "") == Wait()
    assert following.told(RUNNING, "") == Attach(0)


def test_the_run_that_was_lost_is_not_gone_back_to() -> None:
    following = Following("job 'one' (a1)", left=0)
    assert following.told(RUNNING, "") == Wait()  # the dispatcher has not heard of it
    step = following.told(replace(QUEUED, run=1), "")
    assert isinstance(step, Wait)
    assert "the session starts it again from its newest checkpoint" in (step.say or "")
    assert following.told(replace(QUEUED, run=1), "") == Wait()
    assert following.told(replace(RUNNING, run=1), "") == Attach(1)
    assert following.missing(1) == Wait()
    assert following.told(replace(RUNNING, run=1), "") == Wait()
    assert following.told(ENDED, "") == Over(ENDED)


def test_a_dispatcher_that_stays_away_is_given_up() -> None:
    following = Following("job 'one' (a1)", left=0)
    assert "waits for the dispatcher" in (_said(following.away(0)) or "")
    assert following.away(AWAY_MS - 1) == Wait()
    assert following.told(RUNNING, "") == Wait()
    assert following.away(AWAY_MS) == Wait()
    step = following.away(2 * AWAY_MS)
    assert isinstance(step, GiveUp)
    assert "strom cluster start" in step.why


def _said(step: Step) -> str | None:
    assert isinstance(step, Wait)
    return step.say


class Life:
    """A job of a session: run after run, each of which is lost, until the last ends. What the
    dispatcher says may be late; it is away now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now = rng, 0
        self.record = QUEUED
        self.alive: int | None = None
        """The run of the coordinator that lives."""
        self.losses = rng.randrange(4)

    def go_on(self) -> None:
        self.now += self.rng.randrange(1_000)
        match self.record.phase:
            case Phase.QUEUED:
                self.record = replace(self.record, phase=Phase.STARTING)
            case Phase.STARTING:
                if self.rng.random() < 0.3:  # the start failed: the same run again
                    self.record = replace(self.record, phase=Phase.QUEUED)
                else:
                    self.alive = self.record.run
                    self.record = replace(self.record, phase=Phase.RUNNING)
            case Phase.RUNNING if self.alive is not None and self.losses:
                self.losses -= 1
                self.alive = None
            case Phase.RUNNING if self.alive is None:
                self.record = replace(self.record, phase=Phase.QUEUED, run=self.record.run + 1)
            case Phase.RUNNING:
                self.record, self.alive = replace(self.record, phase=Phase.ENDED), None


@pytest.mark.parametrize("seed", range(100))
def test_a_client_comes_to_the_end_of_every_job(seed: int) -> None:
    rng = random.Random(seed)
    life, runs, said = Life(rng), list[int](), list[Any]()
    following = Following("job")
    for _ in range(1_000):
        if rng.random() < 0.5:
            life.go_on()
        if runs and life.alive == runs[-1]:
            continue  # it is asked, and answers
        if runs and following.left < runs[-1]:
            following, said = Following("job", runs[-1]), []
        away = rng.random() < 0.1
        step = following.away(life.now) if away else following.told(life.record, "")
        match step:
            case Attach(run):
                assert run > following.left
                assert run not in runs
                if life.alive == run:
                    runs.append(run)
                else:
                    following.missing(run)
            case Over(record):
                assert record.phase is Phase.ENDED
                return
            case Wait(say):
                assert say is None or say not in said
                said.append(say)
            case GiveUp():
                raise AssertionError("a dispatcher that answers now and then is not given up")
    raise AssertionError(f"it never heard of the end: {life.record}, {runs}")
