"""How many subtasks a load takes, by what the busiest of them would get.

Keys and partitions come in portions (key groups, partitions) of which a subtask has whole ones: 65
subtasks of 128 key groups do no more than 64, as one of either has two. What is known of the load
of each key group counts; else the skew that was seen is taken to stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from .loads import Flow, Load

Numbers = npt.NDArray[np.float64]

SKEWED: Final = 1.5
"""From which on the busiest subtask has so much more to do than the mean one that more subtasks
bring less than they should."""

NO_GAIN: Final = 0.1
"""Where what comes cannot be handled for skew: more subtasks are not worth it, if with all that
there may be the busiest one would have less than that part less to do."""


class Shares:
    """The share of the spread records that the busiest subtask of one vertex gets, by its
    parallelism."""

    def __init__(self, load: Load) -> None:
        self._portions = load.vertex.portions
        self._sums = _sums(load.loads) if load.vertex.keyed else None
        self._now = load.parallelism, load.busiest_share
        """What is so, however key groups were dealt; a rescale deals them evenly."""
        even = self._even(load.parallelism)
        self._skew = max(1.0, load.skew / (even * load.parallelism))
        """What portions of equal size do not explain."""

    def busiest(self, parallelism: int) -> float:
        now, share = self._now
        if self._sums is not None and share is not None and parallelism == now:
            return share
        if self._sums is not None and parallelism < len(self._sums):
            return _largest(self._sums, parallelism)
        return min(1.0, self._even(parallelism) * self._skew)

    @property
    def is_guess(self) -> bool:
        """Whether there is skew of which it is not known where it comes from: a single key, then
        more subtasks change nothing, or many."""
        return self._sums is None and self._skew > SKEWED

    @property
    def heaviest_portion(self) -> float | None:
        """The share of the key group (or run of groups) that has most; None: not known."""
        return None if self._sums is None else float(np.diff(self._sums).max())

    def _even(self, parallelism: int) -> float:
        portions = self._portions
        if portions is None or parallelism >= portions:
            return 1.0 / min(parallelism, portions or parallelism)
        return -(-portions // parallelism) / portions


def utilization(load: Load, shares: Shares, parallelism: int, flow: Flow) -> float:
    """Of the busiest subtask, if `flow` came; above 1: it could not be handled. 0 where nothing is
    known of what a subtask can do."""
    if load.true_rate is None:
        return 0.0
    return (shares.busiest(parallelism) * flow.spread + flow.whole) / load.true_rate


def wanted(load: Load, aim: float, restart_s: float, catch_up_s: float) -> Flow:
    """What is to be handled at full utilisation, so that what comes is handled at `aim` and
    backlogs are worked off in time, that of a restart of `restart_s` included."""
    flow = load.target.times(1.0 / aim).plus(load.extra)
    return flow.plus(load.target.times(restart_s / catch_up_s)) if catch_up_s else flow


def least(load: Load, shares: Shares, flow: Flow, low: int, high: int) -> int:
    """The least parallelism in low..high that handles `flow`; if none does, the least one that
    comes closest, or close where that is for skew."""
    used = []
    for parallelism in range(low, high + 1):
        used.append(utilization(load, shares, parallelism, flow))
        if used[-1] <= 1.0:
            return parallelism
    skewed = shares.busiest(high) * high > SKEWED
    enough = min(used) * (1 + NO_GAIN if skewed else 1.0)
    return low + next(at for at, one in enumerate(used) if one <= enough)


def even(parallelism: int, portions: int | None, high: int) -> int:
    """The next parallelism up to `high` that divides the portions; if there is none, the same."""
    if portions is None:
        return parallelism
    return next((p for p in range(parallelism, high + 1) if portions % p == 0), parallelism)


def _sums(loads: Sequence[int] | None) -> Numbers | None:
    """Shares up to each group; None where nothing came."""
    total = sum(loads) if loads else 0
    if not loads or not total:
        return None
    return np.concatenate(([0.0], np.cumsum(np.array(loads, dtype=np.float64)) / total))


def _largest(sums: Numbers, parallelism: int) -> float:
    """As `state.key_groups` deals groups to subtasks."""
    groups = len(sums) - 1
    bounds = -(-np.arange(parallelism + 1) * groups // parallelism)
    return float(np.diff(sums[bounds]).max())
