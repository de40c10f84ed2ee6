"""What the autoscaler promises, looked at from outside on a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from ...core.autoscaler_config import AutoscalerConfig
from ...core.ids import VertexId
from .pipeline import Pipeline
from .running import WARM_S, Run, enough

DRAINED_S: Final = 5.0
"""A lag below which a backlog is worked off."""

ROUNDS: Final = 3
"""Rescales after which the parallelism fits a load that does not change: the first decision may be
made on figures of before and after the change, and what it was held up by is seen only then."""

NOISE: Final = 0.12
"""Of a load, as the part of it that its standard deviation is."""

SLACK: Final = 1.25
"""What a catch-up may take, of what it should."""


def broken(run: Run, config: AutoscalerConfig) -> list[str]:
    """A line for each promise that was not kept."""
    return [*_bounds(run, config), *_calm(run, config), *_drained(run, config), *_few(run, config)]


def settled_s(run: Run, config: AutoscalerConfig) -> float:
    """From a change of the load until the parallelism fits it."""
    each = config.stabilization + config.metrics_window + 2 * config.interval
    return ROUNDS * (each.total_seconds() + run.setting.pause_s + WARM_S)


def _bounds(run: Run, config: AutoscalerConfig) -> Iterator[str]:
    for group in run.setting.shape.together:
        first = run.parallelism[group[0].id]
        start = run.setting.start[group[0].id]
        for vertex in group:
            each = run.parallelism[vertex.id]
            if not np.array_equal(each, first):
                yield f"{vertex.id} and {group[0].id} have different parallelisms"
            low = min(start, config.min_parallelism)
            high = max(start, min(config.max_parallelism, vertex.most))
            if each.min() < low or each.max() > high:
                yield f"{vertex.id} had {each.min()}..{each.max()}, may have {low}..{high}"
            if vertex.fixed and each.min() != each.max():
                yield f"{vertex.id} was changed, though {vertex.fixed}"


def _constant(run: Run) -> Iterator[tuple[int, int]]:
    """Stretches in which the load is the same, as (first second, end)."""
    changes = np.flatnonzero(np.diff(run.curve)) + 1
    yield from pairwise([0, *(int(at) for at in changes), len(run.curve)])


def _calm(run: Run, config: AutoscalerConfig) -> Iterator[str]:
    """On a load that does not change there is an end to rescales: more are had within some rounds,
    fewer once, after the backlog that they were for is gone."""
    catch_up_s = config.catch_up.total_seconds() * SLACK
    down_s = config.scale_down_interval.total_seconds()
    for begin, end in _constant(run):
        calm = begin + 2 * settled_s(run, config) + catch_up_s + 2 * down_s
        late = [decision for decision in run.decisions if calm < decision.at_s < end]
        ups = [d for d in late if any(v.after > v.before for v in d.verdicts)]
        if ups:
            yield f"more subtasks at {ups[0].at_s:.0f} s of a load that is the same since {begin} s"
        if len(late) > 3:  # by at most 60 % each time
            yield f"{len(late)} rescales on a load that is the same since {begin} s"


def _drained(run: Run, config: AutoscalerConfig) -> Iterator[str]:
    """A backlog is gone in the time that was promised, if so many subtasks may be had."""
    lags, catch_up_s = run.lags(), config.catch_up.total_seconds()
    for begin, end in _constant(run):
        due = round(begin + settled_s(run, config) + catch_up_s * SLACK)
        if due >= end or not catch_up_s:
            continue
        # what it takes at most to be in time: all that came until the last rescale, and the load
        behind = run.backlog[begin : due + 1].max() / catch_up_s
        load = run.curve[begin] / config.target_utilization + behind
        most = enough(run.setting, load, config.max_parallelism)
        if not _feasible(run, load, most):
            continue
        worst = float(lags[due:end].max())
        paused = any(due - 60 <= decision.at_s < end for decision in run.decisions)
        allowed = DRAINED_S + (2 * (run.setting.pause_s + WARM_S) if paused else 0)
        if worst > allowed:
            yield f"{worst:.0f} s behind after {due} s, on a load that is the same since {begin} s"


def _feasible(run: Run, load: float, chosen: dict[VertexId, int]) -> bool:
    setting = run.setting
    pipeline = Pipeline(setting.shape, setting.works, chosen, np.random.default_rng(0))
    return pipeline.handles(load)


def _few(run: Run, config: AutoscalerConfig) -> Iterator[str]:
    """Noise that utilisation's bounds take changes nothing. Whatever comes, a vertex gets fewer
    subtasks only after half a `scale_down_interval` in which they would have done, and a window."""
    noise = float(run.curve.std() / run.curve.mean())
    if noise < NOISE and len(run.decisions) > 2 * ROUNDS:
        yield f"{len(run.decisions)} rescales for noise of {100 * noise:.0f} %"
    each_s = config.scale_down_interval.total_seconds() / 2
    each_s += (config.stabilization + config.metrics_window).total_seconds()
    for vertex in run.parallelism:
        changes = [v for d in run.decisions for v in d.verdicts if v.vertex == vertex and v.changes]
        turns = sum(a.after > a.before and b.after < b.before for a, b in pairwise(changes))
        if turns > len(run.curve) / each_s + 1:
            yield f"{vertex} went up and down {turns} times"
