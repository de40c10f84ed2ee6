"""Barriers of one task that holds nobody back: which snapshots are due (at least once).

A snapshot is taken when the barrier has come on all channels; what other channels delivered behind
theirs is in it, too, and comes again after a restore. Since no channel waits, one may be some
checkpoints ahead of another, and each is counted by itself.

Answers as `BarrierAligner` does, with Align and Abandon only; nothing overtakes here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.elements import CheckpointBarrier
from ..core.errors import IllegalTransitionError
from ..core.ids import CheckpointId
from .barrier_alignment import Abandon, Actions, Align


@dataclass(slots=True)
class _Tracked:
    """`arrived`: the channels that have delivered it, fewer than all."""

    barrier: CheckpointBarrier
    arrived: set[int] = field(default_factory=set)


class BarrierTracker:
    """The barriers of a task with `channels` input channels.

    Invariant: what is in `_open` is above `_settled`, not in `_given_up`, and every channel that
    has not delivered it has delivered nothing newer."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._seen = [0] * channels
        """Highest checkpoint id delivered by each channel; only grows."""
        self._open: dict[CheckpointId, _Tracked] = {}
        self._settled = 0
        """None up to this is due any more."""
        self._given_up: set[CheckpointId] = set()
        """Above `_settled`: nor is one of these."""

    def on_announced(self, index: int, barrier: CheckpointBarrier) -> Actions:
        """It waits for its turn."""
        return ()

    def on_due(self, checkpoint_id: CheckpointId) -> Actions:
        """Nothing overtakes."""
        return ()

    def on_recorded(self, index: int) -> Actions:
        """Nothing is recorded."""
        raise IllegalTransitionError(f"barrier tracking: channel {index} is not being recorded")

    def on_barrier(self, index: int, barrier: CheckpointBarrier) -> Actions:
        """Channel `index` delivered `barrier`. IllegalTransitionError if its id is not above the
        last one of the channel."""
        n, last = barrier.checkpoint_id, self._seen[index]
        if n <= last:
            raise IllegalTransitionError(
                f"barrier tracking: channel {index} delivered barrier {n} after barrier {last}"
            )
        self._seen[index] = n
        passed = [m for m, one in self._open.items() if m < n and index not in one.arrived]
        before = tuple(Abandon(m) for m in passed if self._open.pop(m))
        if n <= self._settled or n in self._given_up:
            return before
        if n not in self._open and any(seen > n for seen in self._seen):
            return before  # another channel has gone on without it
        one = self._open.setdefault(n, _Tracked(barrier))
        if one.barrier != barrier:
            raise IllegalTransitionError(
                f"barrier tracking: channel {index} delivered {barrier}, another {one.barrier}"
            )
        one.arrived.add(index)
        if len(one.arrived) < self._channels:
            return before
        del self._open[n]
        self._settled = n
        self._given_up = {m for m in self._given_up if m > n}
        return (*before, Align(barrier))

    def on_abort(self, checkpoint_id: CheckpointId) -> Actions:
        """The coordinator gave it up."""
        if checkpoint_id > self._settled:
            self._given_up.add(checkpoint_id)
        return (Abandon(checkpoint_id),) if self._open.pop(checkpoint_id, None) else ()

    def validate(self) -> None:
        """Assert the invariants."""
        for n, one in self._open.items():
            assert n > self._settled
            assert n not in self._given_up
            assert 0 < len(one.arrived) < self._channels
            assert all((self._seen[i] >= n) == (i in one.arrived) for i in range(self._channels))
