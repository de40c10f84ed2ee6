"""A simulated job under a load curve, with the autoscaler at the wheel, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...autoscaling.autoscaler import Autoscaler
from ...autoscaling.shape import Shape
from ...autoscaling.verdicts import Decision
from ...core.autoscaler_config import AutoscalerConfig
from ...core.ids import VertexId
from .curves import Curve
from .pipeline import Numbers, Pipeline, Work

WARM_S: Final = 20
"""After each start, in which subtasks are at half speed."""

_STEPS: Final = 60


@dataclass(frozen=True)
class Setting:
    """`pause_s`: in which nothing runs, of each rescale. `fails`: which rescales fail (0, 1, ...),
    after which the job goes on as it was, a pause later."""

    shape: Shape
    works: Mapping[VertexId, Work]
    start: Mapping[VertexId, int]
    pause_s: int = 15
    seed: int = 0
    noisy: float = 0.02
    tells_loads: bool = False
    fails: frozenset[int] = frozenset()


@dataclass
class Run:
    """What happened. `parallelism`: by vertex, second by second; `read`: by the source, each
    second; `decisions`: those that changed something, by when; `last`: what was looked at last."""

    setting: Setting
    curve: Curve
    parallelism: dict[VertexId, npt.NDArray[np.int64]]
    read: Numbers
    backlog: Numbers
    decisions: list[Decision] = field(default_factory=list)
    last: Decision | None = None

    @property
    def subtask_seconds(self) -> int:
        return int(sum(each.sum() for each in self.parallelism.values()))

    def lags(self) -> Numbers:
        """How old the oldest record is that was not read yet, each second."""
        came, read = np.cumsum(self.curve), np.cumsum(self.read)
        seconds = np.arange(1, len(came) + 1)
        due = np.interp(read, came, seconds, left=0.0)
        return np.maximum(0.0, np.where(self.backlog >= 1.0, seconds - due, 0.0))


def simulate(setting: Setting, curve: Curve, config: AutoscalerConfig | None) -> Run:
    """`config` None: the parallelism stays as it was at the start."""
    pipeline = Pipeline(
        setting.shape,
        setting.works,
        setting.start,
        np.random.default_rng(setting.seed),
        setting.noisy,
        setting.tells_loads,
    )
    scaler = None if config is None else Autoscaler(config, setting.shape)
    every = 1 if config is None else max(1, round(config.interval.total_seconds()))
    seconds = len(curve)
    run = Run(
        setting,
        curve,
        {vertex.id: np.zeros(seconds, np.int64) for vertex in setting.shape.vertices},
        np.zeros(seconds),
        np.zeros(seconds),
    )
    down_until, warm_until, coming, tried = -1, 0, dict(setting.start), 0
    if scaler is not None:
        scaler.began(0, pipeline.attempt)
    for now in range(seconds):
        if now < down_until:
            pipeline.backlog += curve[now]
        else:
            if now == down_until:
                pipeline.start(coming)
                warm_until = now + WARM_S
                if scaler is not None:
                    scaler.began(now, pipeline.attempt)
            run.read[now] = pipeline.second(curve[now], 0.5 if now < warm_until else 1.0)
            if scaler is not None and now % every == 0:
                decision = scaler.observe(pipeline.sample(now))
                run.last = decision
                scaler.memory.validate()
                if decision.changes:
                    run.decisions.append(decision)
                    scaler.rescaling(now, decision)
                    coming = {**pipeline.parallelism, **decision.changes}
                    if tried in setting.fails:
                        scaler.failed(now, "there are no slots")
                        coming = dict(pipeline.parallelism)
                    down_until, tried = now + setting.pause_s, tried + 1
        run.backlog[now] = pipeline.backlog
        for vertex, subtasks in pipeline.parallelism.items():
            run.parallelism[vertex][now] = subtasks
    return run


def enough(setting: Setting, rate: float, most: int = 200) -> dict[VertexId, int]:
    """The least parallelism of each vertex that handles `rate` at the source: what somebody would
    choose who knows the load. Vertices of which none does get the one that does most."""
    found: dict[VertexId, int] = {}
    pipeline = Pipeline(setting.shape, setting.works, setting.start, np.random.default_rng(0))
    flows = pipeline.flows(rate)
    for group in setting.shape.together:
        if any(vertex.fixed for vertex in group):
            chosen = setting.start[group[0].id]
        else:
            busy = {
                p: max(pipeline.seconds_at(vertex.id, p, flows[vertex.id]) for vertex in group)
                for p in range(1, min(most, *(vertex.most for vertex in group)) + 1)
            }
            best = min(busy, key=lambda p: (busy[p], p))
            chosen = next((p for p in busy if busy[p] <= 1.0), best)
        found |= {vertex.id: chosen for vertex in group}
    return found


def oracle_seconds(setting: Setting, curve: Curve) -> float:
    """Subtask-seconds of somebody who always has just enough, and rescales for nothing."""
    levels = np.linspace(0.0, float(curve.max()), _STEPS + 1)[1:]
    costs = np.array([sum(enough(setting, float(level)).values()) for level in levels])
    return float(costs[np.minimum(np.searchsorted(levels, curve), _STEPS - 1)].sum())
