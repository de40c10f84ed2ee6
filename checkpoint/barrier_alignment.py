"""Barriers of one task: which channels to hold back, and when to take the snapshot.

A snapshot reflects, of every input channel, precisely the records before that channel's barrier
(Chandy-Lamport on FIFO channels, as Flink runs it). There are two ways to get there:

    aligned        a channel that has delivered its barrier is not read until the others have
    unaligned      the first barrier is enough: it overtakes what waits in the task's channels, and
                   the records before the other barriers become part of the snapshot

Where nobody waits for anybody (at least once), `barrier_tracking` has their place.

Several aligned checkpoints may be on their way: the barrier of the next one waits in each blocked
channel until the one before is aligned, so that a task has one at hand. Of unaligned ones there is
one at a time.

An aligned checkpoint may turn unaligned on its way (`on_due`), each task by itself. Channels that
are *in order* are never overtaken: their barriers are waited for as in an aligned checkpoint.

Pure: the task feeds events in, and carries out the returned actions in order before it polls its
gate again. `n` is the checkpoint at hand; the channels of an Overtake that are *open* have not
delivered their barriers, and are recorded by the gate until they have.

    state         event                             actions                        next
    idle          announced n                       -                              aligning n
    idle          barrier n, one channel            Align(n)                       idle
    idle          barrier n, several channels       Block(i)                       aligning n
    idle          barrier or announced n, settled   -                              idle
    aligning n    announced n                       -                              aligning n
    aligning n    barrier n, not the last           Block(i)                       aligning n
    aligning n    barrier n, the last               Align(n), UnblockAll           idle
    aligning n    due and all in order are in       Overtake(n, open), UnblockAll  recording n
    aligning n    barrier or announced m > n        Abandon(n), UnblockAll, as if idle
    aligning n    barrier or announced m < n        -                              aligning n
    aligning n    abort of n                        Abandon(n), UnblockAll         idle
    recording n   recorded, not the last open one   -                              recording n
    recording n   recorded, the last open one       Recorded(n)                    idle
    recording n   announced or barrier m > n        Abandon(n), as if idle
    recording n   abort of n                        Abandon(n)                     idle
    any           abort of m otherwise              -                              unchanged

A checkpoint is *settled* when it was aligned, overtaken with, abandoned, aborted, or overtaken by a
newer one; its late barriers are skipped. `EndOfData` changes nothing here: a task's channels stay
open behind it, and the barriers of later checkpoints (the terminal one at least) still arrive on
every channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
class Overtake:
    """Snapshot now, and forward `barrier` ahead of all that waits to be sent. What is before it in
    the channels of `open` is recorded, and `on_recorded` told of each that has delivered it. The
    others have nothing before it."""

    barrier: CheckpointBarrier
    open: frozenset[int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that `checkpoint_id` overtook in the input channels has been recorded."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Abandon:
    """What was in progress is given up; this task will not complete `checkpoint_id`."""

    checkpoint_id: CheckpointId


Action = Block | UnblockAll | Align | Overtake | Recorded | Abandon
Actions = tuple[Action, ...]

_HISTORY = 24


@dataclass(frozen=True, slots=True)
class _Idle:
    """Nothing in progress, nothing is blocked."""


@dataclass(slots=True)
class _Aligning:
    """`arrived`: the channels whose barriers were read, fewer than all; they are blocked. `due`:
    whether it may overtake."""

    barrier: CheckpointBarrier
    arrived: set[int] = field(default_factory=set)
    due: bool = False


@dataclass(slots=True)
class _Recording:
    """`open`: the channels whose barriers have not come; at least one."""

    barrier: CheckpointBarrier
    open: set[int]


_IDLE = _Idle()


class BarrierAligner:
    """The barriers of a task with `channels` input channels (numbered by target_index)."""

    def __init__(self, channels: int, in_order: Iterable[int] = ()) -> None:
        """`in_order`: channels that no barrier overtakes."""
        if channels < 1:
            raise ConfigurationError(f"an aligner needs at least one channel, got {channels}")
        self._channels = channels
        self._in_order = frozenset(in_order)
        self._seen = [0] * channels
        """Highest checkpoint id delivered by each channel; only grows."""
        self._settled = 0
        """No checkpoint up to this id will be aligned (again); below the one being aligned."""
        self._given_up: set[CheckpointId] = set()
        """Nor one of these, which are above."""
        self._overtaken = False
        """Whether a barrier may ever have overtaken, here or at its sender, so that older ones may
        come late."""
        self._state: _Idle | _Aligning | _Recording = _IDLE
        self._history: deque[str] = deque(maxlen=_HISTORY)

    @property
    def blocked(self) -> frozenset[int]:
        """The channels that must not be read now."""
        if isinstance(self._state, _Aligning):
            return frozenset(self._state.arrived)
        return frozenset()

    @property
    def aligning(self) -> CheckpointId | None:
        """The checkpoint that waits for barriers before its snapshot."""
        return self._state.barrier.checkpoint_id if isinstance(self._state, _Aligning) else None

    @property
    def recording(self) -> CheckpointId | None:
        """The checkpoint that waits for barriers behind its snapshot."""
        return self._state.barrier.checkpoint_id if isinstance(self._state, _Recording) else None

    def on_announced(self, index: int, barrier: CheckpointBarrier) -> Actions:
        """`barrier`, of a checkpoint that may overtake, waits in channel `index`."""
        self._record(f"announced {barrier.checkpoint_id} on channel {index}")
        self._check_index(index)
        self._overtaken |= barrier.overtakes
        before = self._make_way(barrier.checkpoint_id)
        if isinstance(self._state, _Idle) and self._is_open(barrier.checkpoint_id):
            self._state = _Aligning(barrier)
        return before

    def on_due(self, checkpoint_id: CheckpointId) -> Actions:
        """The time for `checkpoint_id` to be aligned has passed; no effect on any other."""
        self._record(f"due {checkpoint_id}")
        match self._state:
            case _Aligning(barrier=barrier) as state if barrier.checkpoint_id == checkpoint_id:
                state.due = True
                return self._maybe_overtake(state)
        return ()

    def on_barrier(self, index: int, barrier: CheckpointBarrier) -> Actions:
        """Channel `index` delivered `barrier` in its turn.

        Raises IllegalTransitionError for a barrier from a blocked channel, one that was to be
        recorded, or one whose id is not above the last one of the channel (a duplicate, or a
        channel that is not FIFO), unless a newer one may have overtaken it.
        """
        self._record(f"barrier {barrier.checkpoint_id} on channel {index}")
        if not self._check_barrier(index, barrier):
            return ()
        self._overtaken |= barrier.overtakes
        self._seen[index] = barrier.checkpoint_id
        before = self._make_way(barrier.checkpoint_id)
        match self._state:
            case _Idle() if self._is_open(barrier.checkpoint_id):
                return (*before, *self._begin(index, barrier))
            case _Aligning() as state if barrier.checkpoint_id == state.barrier.checkpoint_id:
                return (*before, *self._arrive(state, index, barrier))
        return before

    def on_recorded(self, index: int) -> Actions:
        """The barrier of the checkpoint being recorded came on channel `index`, which is open."""
        match self._state:
            case _Recording(barrier=barrier, open=left) if index in left:
                self._record(f"recorded {barrier.checkpoint_id} on channel {index}")
                self._seen[index] = barrier.checkpoint_id
                left.remove(index)
                if left:
                    return ()
                self._state = _IDLE
                return (Recorded(barrier.checkpoint_id),)
        self._refuse(f"channel {index} is not being recorded")

    def on_abort(self, checkpoint_id: CheckpointId) -> Actions:
        """The coordinator gave up `checkpoint_id`; others may still be aligned."""
        self._record(f"abort {checkpoint_id}")
        match self._state:
            case _Aligning(barrier=barrier) | _Recording(barrier=barrier):
                if barrier.checkpoint_id == checkpoint_id:
                    return self._give_up()
        if checkpoint_id > self._settled:
            self._given_up.add(checkpoint_id)
        return ()

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        assert len(self._seen) == self._channels
        assert all(n > self._settled for n in self._given_up)
        match self._state:
            case _Aligning(barrier=barrier, arrived=arrived):
                current = barrier.checkpoint_id
                assert self._is_open(current), (self._settled, current)
                assert len(arrived) < self._channels
                assert all((self._seen[i] == current) == (i in arrived) for i in self._every)
                assert not (self._overtakes(self._state))
            case _Recording(barrier=barrier, open=left):
                current = barrier.checkpoint_id
                assert self._settled == current
                assert left
                assert not left & self._in_order
                assert all((self._seen[i] < current) == (i in left) for i in self._every)

    @property
    def _every(self) -> range:
        return range(self._channels)

    def _begin(self, index: int, barrier: CheckpointBarrier) -> Actions:
        if self._channels == 1:
            self._settle(barrier.checkpoint_id)
            return (Align(barrier),)
        self._state = _Aligning(barrier, {index})
        return (Block(index),)

    def _arrive(self, state: _Aligning, index: int, barrier: CheckpointBarrier) -> Actions:
        if barrier != state.barrier:
            self._refuse(f"channel {index} delivered {barrier}, another channel {state.barrier}")
        state.arrived.add(index)
        if len(state.arrived) < self._channels:
            return (Block(index), *self._maybe_overtake(state))
        self._settle(barrier.checkpoint_id)
        return (Align(barrier), UnblockAll()) if self._channels > 1 else (Align(barrier),)

    def _overtakes(self, state: _Aligning) -> bool:
        return state.due and self._in_order <= state.arrived

    def _maybe_overtake(self, state: _Aligning) -> Actions:
        if not self._overtakes(state):
            return ()
        left = {i for i in self._every if i not in state.arrived}
        self._settle(state.barrier.checkpoint_id)
        self._overtaken = True
        self._state = _Recording(state.barrier, left)
        overtake = Overtake(state.barrier, frozenset(left))
        return (overtake, UnblockAll()) if state.arrived else (overtake,)

    def _make_way(self, checkpoint_id: CheckpointId) -> Actions:
        """For a newer checkpoint than the one in progress, if it is one."""
        if isinstance(self._state, _Idle) or checkpoint_id <= self._state.barrier.checkpoint_id:
            return ()
        return self._give_up()

    def _give_up(self) -> Actions:
        """What is in progress, if anything is."""
        assert not isinstance(self._state, _Idle)
        current = self._state.barrier.checkpoint_id
        blocked = bool(self.blocked)
        self._settle(current)
        return (Abandon(current), UnblockAll()) if blocked else (Abandon(current),)

    def _settle(self, checkpoint_id: CheckpointId) -> None:
        self._settled = max(self._settled, checkpoint_id)
        self._given_up = {n for n in self._given_up if n > self._settled}
        self._state = _IDLE

    def _is_open(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id > self._settled and checkpoint_id not in self._given_up

    def _check_barrier(self, index: int, barrier: CheckpointBarrier) -> bool:
        """Whether it counts."""
        self._check_index(index)
        if index in self.blocked:
            self._refuse(f"channel {index} is blocked by checkpoint {self.aligning} but was read")
        number = barrier.checkpoint_id
        if self.recording == number:
            self._refuse(f"channel {index} delivered barrier {number}, which is being recorded")
        if number > self._seen[index]:
            return True
        if number == self._seen[index] or not self._overtaken:
            last = self._seen[index]
            self._refuse(f"channel {index} delivered barrier {number} after barrier {last}")
        return False

    def _check_index(self, index: int) -> None:
        if not 0 <= index < self._channels:
            self._refuse(f"channel {index} is not one of the {self._channels} channels")

    def _record(self, event: str) -> None:
        self._history.append(event)

    def _refuse(self, why: str) -> NoReturn:
        raise IllegalTransitionError(f"barrier alignment: {why}; events: {list(self._history)}")
