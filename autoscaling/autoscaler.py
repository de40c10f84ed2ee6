"""The autoscaler: samples and what became of rescales in, decisions out.

    starts ──began──▶ quiet ──stabilization──▶ collects ──window full──▶ decides ─┐
       ▲                                                     ▲                     │ no change
       └──────────────── rescaling ◀── (the caller) ── changes                     │
                            └─failed─▶ holds off, then decides again ◀─────────────┘

More subtasks are had at once, fewer only when they would have been enough for the whole of
`scale_down_interval`: a job that lags is worse than one that is a little too large. Decisions are
of all vertices at once, so a load that grows takes one rescale, not one for each vertex in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from ..core.autoscaler_config import AutoscalerConfig
from ..core.ids import VertexId
from .capacity import Shares, even, least, utilization, wanted
from .history import Gain, History
from .loads import Flow, Load, loads_of
from .samples import Sample, Window
from .shape import Shape, Vertex
from .verdicts import Decision, Reason, Verdict

JOINS_FROM: Final = 0.5
"""The part of `scale_down_interval` that is enough where the job is rescaled anyway."""

MOST_MISSED: Final = 3
"""Looks that may be missed, one after the other, before figures begin anew."""

MOST_DOUBLINGS: Final = 6
"""Of the time that is waited after rescales that failed."""


@dataclass
class Memory:
    """What is remembered from one sample to the next. `slack`: by the first vertex of those that
    have one parallelism, when it could have been how small, since it first could.

    Invariant: times in each `slack` ascend, and it spans no break and no start of the job: there is
    none while `window` is not full."""

    window: Window
    history: History = field(default_factory=History)
    slack: dict[VertexId, list[tuple[float, int]]] = field(default_factory=dict)
    rescaling_since_s: float | None = None
    coming: dict[VertexId, Gain] = field(default_factory=dict)
    """What the rescale that is on its way, or was last, should bring."""
    failures: int = 0
    """Rescales that failed, in a row."""
    held_off_until_s: float = float("-inf")
    last_failure: str = ""

    def validate(self) -> None:
        """Assert the invariants."""
        self.window.validate()
        self.history.validate()
        assert self.window.is_full or not self.slack
        for known in self.slack.values():
            assert known
            assert known == sorted(known, key=lambda one: one[0])


class Autoscaler:
    """Of one job. `observe` is called every `config.interval`; whoever carries out a decision calls
    `rescaling` as it begins, and `began` when all tasks run again, as after any other start of the
    job, or `failed` (`steering`). Nobody has to carry out anything: decisions are then made
    again."""

    def __init__(self, config: AutoscalerConfig, shape: Shape) -> None:
        self.config = config
        self.shape = shape
        span_s = config.metrics_window.total_seconds()
        quiet_s = config.stabilization.total_seconds()
        gap_s = max(span_s, MOST_MISSED * config.interval.total_seconds())
        self.memory = Memory(Window(span_s, quiet_s, gap_s))

    # --- events ---------------------------------------------------------------------------------

    def observe(self, sample: Sample) -> Decision:
        """Figures of all vertices now. A sample that knows only some of them is fine."""
        self.memory.window.add(sample)
        if not self.memory.window.is_full:
            self.memory.slack.clear()
        catch_up_s = self.config.catch_up.total_seconds()
        loads = loads_of(self.shape, self.memory.window, catch_up_s)
        at_s, waiting = sample.at_s, self._waiting(sample.at_s)
        limit_s = self.config.backlog_threshold.total_seconds()
        behind = any(load.behind_s > limit_s for load in loads.values())
        stuck = any(load.is_stuck for load in loads.values())
        groups = [_Group(self, group, loads, at_s, behind, stuck) for group in self.shape.together]
        for pipeline in self.shape.pipelines:
            self._hold_to_what_limits(pipeline, groups)
        verdicts = [verdict for group in groups for verdict in group.verdicts()]
        if any(verdict.changes for verdict in verdicts):
            verdicts = [verdict for group in groups for verdict in group.verdicts(joins=True)]
        place = {vertex.id: at for at, vertex in enumerate(self.shape.vertices)}
        verdicts.sort(key=lambda verdict: place[verdict.vertex])
        return Decision(at_s, tuple(verdicts), waiting)

    def rescaling(self, at_s: float, decision: Decision) -> None:
        """A decision is being carried out from now on."""
        self.memory.coming = {
            v.vertex: Gain(at_s, v.before, v.after, v.capacity, v.expected)
            for v in decision.verdicts
            if v.vertex in decision.changes
        }
        self.memory.rescaling_since_s = at_s

    def began(self, at_s: float, attempt: int) -> None:
        """All tasks run: after a rescale, a failure, or for the first time."""
        memory = self.memory
        if memory.rescaling_since_s is not None:
            memory.history.times_s.append(at_s - memory.rescaling_since_s)
            memory.history.changed(memory.coming)
            memory.rescaling_since_s, memory.failures = None, 0
        memory.window.began(at_s, attempt)
        memory.slack.clear()

    def failed(self, at_s: float, why: str) -> None:
        """A rescale could not be: the job runs as before, or `began` follows. The next one is tried
        after `stabilization`, and twice as long each further time."""
        memory = self.memory
        memory.rescaling_since_s, memory.last_failure = None, why
        doubled = 2 ** min(memory.failures, MOST_DOUBLINGS)
        memory.failures += 1
        pause_s = max(self.config.stabilization, self.config.interval).total_seconds()
        memory.held_off_until_s = at_s + doubled * pause_s

    # --- what decisions are made of -------------------------------------------------------------

    def _hold_to_what_limits(self, pipeline: Iterable[Vertex], groups: list[_Group]) -> None:
        """Where one vertex cannot have what it would take, more subtasks of others would only wait
        for it."""
        members = set(pipeline)
        mine = [group for group in groups if members.issuperset(group.vertices)]
        limit = min((group.passes() for group in mine), default=1.0)
        if limit < 1.0:
            for group in mine:
                group.hold_to(limit)

    def _waiting(self, at_s: float) -> str | None:
        memory = self.memory
        if memory.rescaling_since_s is not None:
            return f"the job is being rescaled, for {at_s - memory.rescaling_since_s:.0f} s now"
        if at_s < memory.held_off_until_s:
            left = memory.held_off_until_s - at_s
            return f"the last rescale failed ({memory.last_failure}), {left:.0f} s until the next"
        window = memory.window
        if not window.is_full:
            return f"figures of {window.seconds:.0f} s are there, {window.span_s:.0f} s are needed"
        return None

    def restart_s(self) -> float:
        """What a rescale should take."""
        assumed = self.config.restart_time.total_seconds()
        if not self.config.restart_tracking:
            return assumed
        return self.memory.history.restart_s(assumed, self.config.restart_limit.total_seconds())

    def bounds(self, group: Iterable[Vertex], now: int) -> tuple[int, int]:
        """The parallelisms that vertices may have in one step; `now` is among them."""
        config = self.config
        most = min(config.max_parallelism, *(vertex.most for vertex in group))
        low, high = min(now, config.min_parallelism, most), max(now, most)
        low = max(low, _rounded_up(now * (1 - config.scale_down_factor)), 1)
        most_more = _rounded_up(now * config.scale_up_factor)
        return min(low, now), max(now, min(high, now + most_more))

    def keeps(self, vertex: Vertex) -> str | None:
        """Why the parallelism of a vertex stays as it is; None: it need not."""
        if any(one in self.config.excluded for one in (vertex.id, vertex.name, *vertex.labels)):
            return "it is excluded (job.autoscaler.vertex.exclude.ids)"
        return vertex.fixed


class _Group:
    """Vertices that have one parallelism, and what is to become of it."""

    def __init__(
        self,
        scaler: Autoscaler,
        vertices: tuple[Vertex, ...],
        loads: Mapping[VertexId, Load],
        at_s: float,
        behind: bool,
        stuck: bool,
    ) -> None:
        """`behind`: whether a source is, by more than it may be. `stuck`: whether it is not known
        what would come to some vertex, as `Load.is_stuck`."""
        self._scaler, self._config = scaler, scaler.config
        self.vertices = vertices
        self._at_s = at_s
        self._known = [loads[vertex.id] for vertex in vertices if vertex.id in loads]
        self._shares = {load.vertex.id: Shares(load) for load in self._known}
        self._fixed = next((why for v in vertices if (why := scaler.keeps(v))), None)
        self._now = self._known[0].parallelism if self._known else 0
        self._enough, self._waited = self._now, 0.0
        """What would do, and for which part of the time that it has to."""
        self._behind, self._stuck, self._limit = behind, stuck, 1.0
        self._reason, self._after, self._said = self._judge()

    def passes(self) -> float:
        """The part of what comes that it can handle, if it is not to have more subtasks; else 1."""
        if self._reason not in (Reason.LIMITED, Reason.INEFFECTIVE, Reason.FIXED):
            return 1.0
        return 1.0 / max(1.0, *(self._used(load, load.target) for load in self._known), 1.0)

    def hold_to(self, limit: float) -> None:
        """Only that part of what comes will come."""
        if self._reason is Reason.UP:
            self._limit = limit
            self._reason, self._after, self._said = self._judge()

    def verdicts(self, joins: bool = False) -> list[Verdict]:
        """`joins`: the job is rescaled, so what is a little too small may be made larger, too, and
        what has been too large for a while smaller: one rescale is better than two."""
        reason, after = self._reason, self._after
        if joins and reason is Reason.FITS and (need := self._need()) > self._now:
            reason, after = Reason.JOINS, need
        elif joins and reason is Reason.WAITS and self._waited >= JOINS_FROM:
            reason, after = Reason.JOINS, self._enough
        return [self._verdict(load, reason, after) for load in self._known]

    def _judge(self) -> tuple[Reason, int, str]:
        now = self._now
        if self._fixed is not None:
            return Reason.FIXED, now, self._fixed
        if len(self._known) < len(self.vertices):
            return Reason.UNKNOWN, now, "not all of its figures are there"
        if any(_is_mute(load) for load in self._known):
            return Reason.UNKNOWN, now, "nothing came to it, though something should"
        most = 1.0 if self._behind else self._config.utilization_max
        if any(self._used(load, self._above(load, most)) > 1.0 for load in self._known):
            self._forget_slack()
            return self._up()
        if self._stuck:
            self._forget_slack()
            return Reason.UNKNOWN, now, "what would come is not known: nothing gets through"
        if self._behind or any(self._used(load, self._below(load)) >= 1.0 for load in self._known):
            self._forget_slack()
            return Reason.FITS, now, ""
        need = self._need()
        if need >= now:
            self._forget_slack()
            return Reason.FITS, now, "fewer subtasks would not do, or are not allowed"
        return self._down(need)

    def _up(self) -> tuple[Reason, int, str]:
        need = self._need()
        if need <= self._now:
            return Reason.LIMITED, self._now, self._limited_by()
        for load in self._known:
            if (reached := self._shortfall(load)) is not None:
                said = f"{Reason.INEFFECTIVE.value} ({100 * reached:.0f} % of what they should)"
                return Reason.INEFFECTIVE, self._now, said
        return Reason.UP, need, ""

    def _down(self, need: int) -> tuple[Reason, int, str]:
        """Only while the window is full do looks count."""
        interval_s = self._config.scale_down_interval.total_seconds()
        memory, known = self._scaler.memory, list[tuple[float, int]]()
        if memory.window.is_full:
            known = memory.slack.setdefault(self.vertices[0].id, known)
            known.append((self._at_s, need))
        since = known[0][0] if known else self._at_s
        recent = [p for at, p in known if at >= self._at_s - interval_s] or [need]
        after, waited = max(recent), self._at_s - since
        self._enough, self._waited = after, waited / interval_s if interval_s else 1.0
        if waited < interval_s:
            left = interval_s - waited
            return Reason.WAITS, self._now, f"{after} would be enough, {left:.0f} s until then"
        del known[: max(0, len(known) - len(recent) - 1)]
        return Reason.DOWN, after, ""

    def _need(self) -> int:
        """The least parallelism that handles what comes at the target utilisation."""
        config, restart_s = self._config, self._scaler.restart_s()
        low, high = self._scaler.bounds(self.vertices, self._now)
        if any(shares.is_guess for shares in self._shares.values()):
            high = min(high, 2 * self._now)  # so that it is seen what more subtasks bring
        catch_up_s = config.catch_up.total_seconds()
        need = max(
            least(
                load,
                self._shares[load.vertex.id],
                wanted(load, config.target_utilization, restart_s, catch_up_s)
                if self._limit == 1.0
                else self._above(load, config.target_utilization),
                low,
                high,
            )
            for load in self._known
        )
        if config.adjust_mode == "evenly-spread":
            portions = (vertex.portions for vertex in self.vertices)
            need = even(need, next((p for p in portions if p is not None), None), high)
        return need

    def _above(self, load: Load, most: float) -> Flow:
        """What is to be handled at full utilisation, so that `most` is not passed."""
        if self._limit < 1.0:  # there will be no catching up
            return load.target.times(self._limit / most)
        return load.target.times(1.0 / most).plus(load.extra)

    def _below(self, load: Load) -> Flow:
        """What would have to come for `load` not to be too little."""
        catch_up_s = self._config.catch_up.total_seconds()
        return wanted(load, self._config.utilization_min, self._scaler.restart_s(), catch_up_s)

    def _used(self, load: Load, flow: Flow, parallelism: int | None = None) -> float:
        at = self._now if parallelism is None else parallelism
        return utilization(load, self._shares[load.vertex.id], at, flow)

    def _capacity(self, load: Load, parallelism: int) -> float:
        """Records/s that it handles; 0 where that is not known."""
        if load.true_rate is None:
            return 0.0
        left = max(0.0, load.true_rate - load.target.whole)
        return left / self._shares[load.vertex.id].busiest(parallelism)

    def _shortfall(self, load: Load) -> float | None:
        if not self._config.effectiveness:
            return None
        now = (self._at_s, self._now, self._capacity(load, self._now))
        threshold = self._config.effectiveness_threshold
        return self._scaler.memory.history.shortfall(load.vertex.id, now, threshold)

    def _limited_by(self) -> str:
        """Why there are no more subtasks than now."""
        for load in self._known:
            vertex, heaviest = load.vertex, self._shares[load.vertex.id].heaviest_portion
            if heaviest is not None and heaviest * self._now > 1.0:
                return f"one key group has {100 * heaviest:.0f} % of its records"
            if vertex.partitions is not None and vertex.partitions <= self._now:
                return f"there are {vertex.partitions} partitions to read"
            if vertex.key_groups <= self._now:
                return f"it has {vertex.key_groups} key groups (max_parallelism)"
        if self._config.max_parallelism <= self._now:
            return f"{self._config.max_parallelism} subtasks are the most that it may have"
        return Reason.LIMITED.value

    def _forget_slack(self) -> None:
        self._scaler.memory.slack.pop(self.vertices[0].id, None)

    def _verdict(self, load: Load, reason: Reason, after: int) -> Verdict:
        verdict = Verdict(
            load.vertex.id,
            load.vertex.name,
            reason,
            self._now,
            after,
            load.target.taken(self._now),
            load.extra.taken(self._now),
            load.true_rate,
            self._used(load, load.target),
            self._used(load, load.target, after),
            self._said if reason is self._reason else "",
        )
        return replace(
            verdict,
            capacity=self._capacity(load, self._now),
            expected=self._capacity(load, after),
        )


def _rounded_up(subtasks: float) -> int:
    """A part of one is one; not what floating point makes of none."""
    return ceil(round(subtasks, 9))


def _is_mute(load: Load) -> bool:
    return load.rate <= 0 and load.target.taken(load.parallelism) > 0
