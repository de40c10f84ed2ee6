"""The autoscaler at the wheel of a job: when it looks, what it asks for, and what became of that.

    stage     waits for                                    then
    AWAY      on_running: all tasks run                    WATCHING
    WATCHING  look: the time of `due_ms` came              ASKING, if the job is to be rescaled
              on_interrupted: not all tasks run any more   AWAY
    ASKING    on_rescaled, on_failed                       WATCHING, or AWAY

Pure: whoever has the job tells it what happens, with the time, and carries out what `look` says is
ASKED. While that is on, starts of the job are only noted: parts of it may begin again before the
rescale does, so it is its answer that says whether a start was the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Protocol

from ..core.autoscaler_config import AutoscalerConfig
from ..core.ids import VertexId
from .samples import Sample
from .verdicts import Decision

MOST_ACTS: Final = 50
"""So many of the last ones are known."""


class Scaler(Protocol):
    """Who decides: an `Autoscaler`, called as that says."""

    def observe(self, sample: Sample) -> Decision: ...

    def rescaling(self, at_s: float, decision: Decision) -> None: ...

    def began(self, at_s: float, attempt: int) -> None: ...

    def failed(self, at_s: float, why: str) -> None: ...


class Outcome(Enum):
    """What became of a decision that changes something."""

    ADVICE = "advice"
    """It is not to be carried out."""
    DECLINED = "declined"
    """The job was busy with something else."""
    ASKED = "asked"
    """It is being carried out."""
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Act:
    """A decision that changes something. `at_ms`: when it was made first; `times`: so often, one
    look after the other, while nothing was to be done. `why`: it was declined, or failed."""

    decision: Decision
    at_ms: int
    outcome: Outcome
    why: str = ""
    times: int = 1
    ended_ms: int | None = None

    def explain(self) -> str:
        """One line: what changes, and why."""
        changes = self.decision.changes
        return "; ".join(v.explain() for v in self.decision.verdicts if v.vertex in changes)

    def plain(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "at_ms": self.at_ms,
            "outcome": self.outcome.name,
            "why": self.why or None,
            "times": self.times,
            "ended_ms": self.ended_ms,
            "text": self.explain(),
            **self.decision.plain(),
        }


class Stage(Enum):
    AWAY = "away"
    WATCHING = "watching"
    ASKING = "asking"


class Steering:
    """Of one job under one coordinator: the next one begins with fresh figures."""

    def __init__(self, config: AutoscalerConfig, scaler: Scaler) -> None:
        self._scaling = config.scaling
        self._interval_ms = max(1, round(config.interval.total_seconds() * 1000))
        self._scaler = scaler
        self._runs = False
        """Whether all tasks do."""
        self._attempt: int | None = None
        """The last in which all tasks ran."""
        self._asking = False
        self._started: tuple[float, int] | None = None
        """The last start (s, attempt) while ASKING that the scaler was not told of."""
        self._repeats = False
        """Whether the last look decided the last of `acts`."""
        self.acts: tuple[Act, ...] = ()
        """The oldest first; replaced, never changed."""
        self.due_ms: int | None = None
        """When `look` is to be called; not None exactly while WATCHING."""

    @property
    def stage(self) -> Stage:
        if self._asking:
            return Stage.ASKING
        return Stage.WATCHING if self._runs else Stage.AWAY

    # --- events ---------------------------------------------------------------------------------

    def on_running(self, now_ms: int, attempt: int) -> None:
        """All tasks run, in this attempt or others before it. Again in the same one: no news."""
        self._runs = True
        if attempt != self._attempt:
            self._attempt = attempt
            if self._asking:
                self._started = now_ms / 1000, attempt
            else:
                self._scaler.began(now_ms / 1000, attempt)
        if not self._asking and self.due_ms is None:
            self.due_ms = now_ms + self._interval_ms

    def on_interrupted(self) -> None:
        """Not all tasks run."""
        self._runs, self._repeats, self.due_ms = False, False, None

    def look(self, sample: Sample, now_ms: int, why_not: str | None) -> Act | None:
        """`why_not`: why the job cannot be rescaled now. What is new: an act that is ASKED is to be
        carried out, and answered; None: nothing is to be done, or the same as before was not."""
        assert self.stage is Stage.WATCHING, self.stage
        self.due_ms = now_ms + self._interval_ms
        decision = self._scaler.observe(sample)
        if not decision.changes:
            self._repeats = False
            return None
        if not self._scaling:
            return self._note(Act(decision, now_ms, Outcome.ADVICE))
        if why_not is not None:
            return self._note(Act(decision, now_ms, Outcome.DECLINED, why_not))
        self._scaler.rescaling(now_ms / 1000, decision)
        self._asking, self.due_ms = True, None
        return self._note(Act(decision, now_ms, Outcome.ASKED))

    def on_rescaled(self, now_ms: int) -> Act:
        """The answer: what was to change runs as was asked for. Where others do not, all begin with
        these."""
        act = self._end(now_ms, Outcome.DONE)
        self._begin(now_ms)
        return act

    def on_failed(self, now_ms: int, why: str) -> Act:
        """The other answer: the job is as it was, or will be when it runs again."""
        act = self._end(now_ms, Outcome.FAILED, why)
        self._scaler.failed(now_ms / 1000, why)
        self._begin(now_ms)
        return act

    # --- what they have in common ---------------------------------------------------------------

    def _begin(self, now_ms: int) -> None:
        """Nothing is asked for any more."""
        started, self._started = self._started, None
        if started is not None:
            self._scaler.began(*started)
        if self._runs:
            self.due_ms = now_ms + self._interval_ms

    def _end(self, now_ms: int, outcome: Outcome, why: str = "") -> Act:
        assert self._asking, "nothing was asked for"
        self._asking = False
        act = replace(self.acts[-1], outcome=outcome, why=why, ended_ms=now_ms)
        self.acts = (*self.acts[:-1], act)
        return act

    def _note(self, act: Act) -> Act | None:
        repeated, self._repeats = self._repeats, act.outcome is not Outcome.ASKED
        last = self.acts[-1] if repeated else None
        if last is not None and _targets(last) == _targets(act) and last.outcome is act.outcome:
            same = replace(act, at_ms=last.at_ms, times=last.times + 1)
            self.acts = (*self.acts[:-1], same)
            return None
        self.acts = (*self.acts, act)[-MOST_ACTS:]
        return act

    def validate(self) -> None:
        """Assert the invariants. For use between events."""
        assert (self.due_ms is not None) == (self.stage is Stage.WATCHING)
        assert self._asking or self._started is None
        assert not self._repeats or self.acts
        assert len(self.acts) <= MOST_ACTS
        asked = [act.outcome is Outcome.ASKED for act in self.acts]
        assert not any(asked[:-1])
        assert self._asking == any(asked[-1:])
        for act in self.acts:
            assert act.decision.changes
            assert (act.ended_ms is None) == (act.outcome not in (Outcome.DONE, Outcome.FAILED))


def _targets(act: Act) -> Mapping[VertexId, int]:
    return act.decision.changes
