"""Barrier alignment of one task: when to block a channel, and when to take the snapshot.

Exactly-once needs a snapshot that reflects, of every input channel, precisely the records before
that channel's barrier. So a channel that has delivered its barrier is not read until the others
have delivered theirs (Chandy-Lamport on FIFO channels, as Flink runs it). Pure: the task feeds
events in, and carries out the returned actions in order before it polls its gate again.

    state        event                             actions                        next
    idle         barrier n, one channel            Align(n)                       idle
    idle         barrier n, several channels       Block(i)                       aligning n
    idle         barrier n, settled before         -                              idle
    aligning n   barrier n, not the last           Block(i)                       aligning n
    aligning n   barrier n, the last               Align(n), UnblockAll           idle
    aligning n   barrier m > n                     Abandon(n), UnblockAll, Block  aligning m
    aligning n   barrier m < n                     -                              aligning n
    aligning n   abort of m >= n                   Abandon(n), UnblockAll         idle
    any          abort of m otherwise              -                              unchanged

A checkpoint is *settled* when it was aligned, abandoned, or overtaken by a newer one; its late
barriers are skipped. `EndOfData` changes nothing here: a task's channels stay open behind it, and
the barriers of later checkpoints (the terminal one at least) still arrive on every channel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NoReturn

from ..core.elements import CheckpointBarrier
from ..core.errors import ConfigurationError, IllegalTransitionError
from ..core.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Block:
    """Stop reading channel `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class UnblockAll:
    """Read all channels again."""


@dataclass(frozen=True, slots=True)
class Align:
    """Every channel delivered `barrier`: snapshot now, then forward it."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class Abandon:
    """The alignment in progress is given up; this task will not snapshot `checkpoint_id`."""

    checkpoint_id: CheckpointId


Action = Block | UnblockAll | Align | Abandon
Actions = tuple[Action, ...]

_HISTORY = 24


@dataclass(frozen=True, slots=True)
class _Idle:
    """No alignment in progress, nothing is blocked."""


@dataclass(slots=True)
class _Aligning:
    """`arrived`: the blocked channels; at least one, fewer than all."""

    barrier: CheckpointBarrier
    arrived: set[int] = field(default_factory=set)


_IDLE = _Idle()


class BarrierAligner:
    """The alignment state of a task with `channels` input channels (numbered by target_index)."""

    def __init__(self, channels: int) -> None:
        if channels < 1:
            raise ConfigurationError(f"an aligner needs at least one channel, got {channels}")
        self._channels = channels
        self._seen = [0] * channels
        """Highest checkpoint id delivered by each channel; only grows."""
        self._settled = 0
        """No checkpoint up to this id will be aligned (again); below the one being aligned."""
        self._state: _Idle | _Aligning = _IDLE
        self._history: deque[str] = deque(maxlen=_HISTORY)

    @property
    def blocked(self) -> frozenset[int]:
        """The channels that must not be read now."""
        return frozenset() if isinstance(self._state, _Idle) else frozenset(self._state.arrived)

    @property
    def aligning(self) -> CheckpointId | None:
        """The checkpoint being aligned."""
        return None if isinstance(self._state, _Idle) else self._state.barrier.checkpoint_id

    def on_barrier(self, index: int, barrier: CheckpointBarrier) -> Actions:
        """Channel `index` delivered `barrier`.

        Raises IllegalTransitionError for a barrier from a blocked channel, or one whose id is not
        above the last one of the channel (a duplicate, or a channel that is not FIFO).
        """
        self._record(f"barrier {barrier.checkpoint_id} on channel {index}")
        self._check_barrier(index, barrier)
        self._seen[index] = barrier.checkpoint_id
        match self._state:
            case _Idle() if barrier.checkpoint_id <= self._settled:
                return ()
            case _Idle():
                return self._begin(index, barrier)
            case _Aligning() as state:
                return self._while_aligning(state, index, barrier)

    def on_abort(self, checkpoint_id: CheckpointId) -> Actions:
        """The coordinator gave up `checkpoint_id`, and with it all earlier ones still open."""
        self._record(f"abort {checkpoint_id}")
        match self._state:
            case _Aligning(barrier=barrier) if barrier.checkpoint_id > checkpoint_id:
                return ()
            case _Aligning(barrier=barrier):
                self._settle(checkpoint_id)
                return (Abandon(barrier.checkpoint_id), UnblockAll())
            case _Idle():
                self._settle(max(self._settled, checkpoint_id))
                return ()

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        assert len(self._seen) == self._channels
        if isinstance(self._state, _Idle):
            return
        current = self._state.barrier.checkpoint_id
        assert self._settled < current, (self._settled, current)
        assert 1 <= len(self._state.arrived) < self._channels
        assert all(self._seen[i] == current for i in self._state.arrived)
        assert all(
            self._seen[i] < current for i in range(self._channels) if i not in self._state.arrived
        )

    def _begin(self, index: int, barrier: CheckpointBarrier) -> Actions:
        if self._channels == 1:
            self._settle(barrier.checkpoint_id)
            return (Align(barrier),)
        self._state = _Aligning(barrier, {index})
        return (Block(index),)

    def _while_aligning(self, state: _Aligning, index: int, barrier: CheckpointBarrier) -> Actions:
        current = state.barrier
        if barrier.checkpoint_id < current.checkpoint_id:
            return ()
        if barrier.checkpoint_id > current.checkpoint_id:
            self._settle(current.checkpoint_id)
            return (
                Abandon(current.checkpoint_id),
                UnblockAll(),
                *self._begin(index, barrier),
            )
        if barrier != current:
            self._refuse(f"channel {index} delivered {barrier}, another channel {current}")
        state.arrived.add(index)
        if len(state.arrived) < self._channels:
            return (Block(index),)
        self._settle(current.checkpoint_id)
        return (Align(current), UnblockAll())

    def _settle(self, checkpoint_id: int) -> None:
        self._settled = checkpoint_id
        self._state = _IDLE

    def _check_barrier(self, index: int, barrier: CheckpointBarrier) -> None:
        self._check_channel(index)
        if barrier.checkpoint_id <= self._seen[index]:
            self._refuse(
                f"channel {index} delivered barrier {barrier.checkpoint_id} after "
                f"barrier {self._seen[index]}"
            )

    def _check_channel(self, index: int) -> None:
        if not 0 <= index < self._channels:
            self._refuse(f"channel {index} is not one of the {self._channels} channels")
        if index in self.blocked:
            self._refuse(f"channel {index} is blocked by checkpoint {self.aligning} but was read")

    def _record(self, event: str) -> None:
        self._history.append(event)

    def _refuse(self, why: str) -> NoReturn:
        raise IllegalTransitionError(f"barrier alignment: {why}; events: {list(self._history)}")
