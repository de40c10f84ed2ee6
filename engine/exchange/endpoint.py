"""The seam between a task and its exchange: one endpoint per task, whatever the transport.

The task's thread owns the endpoint; only `wake` may be called from elsewhere. Nothing here blocks,
but for `pump` with a timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...core.batch import Batch
from ...core.elements import CheckpointBarrier, Control, Element
from ...core.ids import ChannelId, CheckpointId, TaskId
from ..graph.model import Channel
from .kept import Kept

Address = Any
"""Where an endpoint can be reached; picklable, meaningful to endpoints of the same transport."""


@dataclass(frozen=True)
class Wiring:
    """Channels of one task in one attempt, and where its peers are.

    `inputs` in order of `target_index`; `outputs` in order of channel id. `peers` holds the address
    of the receiver of each output channel. `names`: what tasks are called in errors, those that are
    not there by their ids. Whose endpoint it is, its errors leave to the task to say.
    """

    attempt: int
    inputs: Sequence[Channel]
    outputs: Sequence[Channel]
    peers: Mapping[TaskId, Address]
    names: Mapping[TaskId, str] = field(default_factory=dict)

    def called(self, task: TaskId) -> str:
        """In errors."""
        return self.names.get(task, str(task))


@dataclass(frozen=True)
class ExchangeStatistics:
    """Bytes are payload bytes. `in_flight_bytes`: queued here, at the input and the outputs
    together;
    `peak_in_flight_bytes` its maximum so far; `bound_bytes`: what the configuration allows."""

    bytes_sent: int
    bytes_received: int
    buffers_sent: int
    buffers_received: int
    in_flight_bytes: int
    peak_in_flight_bytes: int
    bound_bytes: int


class OutputChannel(Protocol):
    """The sending end of one channel. Batches are coalesced into buffers and leave by credit."""

    channel: Channel

    def write(self, batch: Batch) -> None:
        """Queue records. Never blocks; check `available` before producing more."""
        ...

    def write_control(self, element: Control) -> None:
        """Queue a control element behind everything written so far. Needs no credit."""
        ...

    @property
    def available(self) -> bool:
        """Whether a batch more would leave soon: fewer bytes wait than one buffer."""
        ...

    def waits_less_than(self, buffers: int) -> bool:
        """Whether fewer bytes wait than so many buffers hold."""
        ...

    def overtake(self, barrier: CheckpointBarrier) -> list[Element]:
        """Put `barrier` ahead of all that waits here; if it waits here itself, ahead of what is
        before it. Returns what it passed, in order, but for what is not kept (`kept`)."""
        ...

    def holds(self, checkpoint_id: CheckpointId) -> bool:
        """Whether the barrier of this checkpoint waits here."""
        ...


class InputGate(Protocol):
    """The receiving ends of all input channels of a task."""

    def poll(self) -> tuple[int, Element] | None:
        """The next element and the `target_index` of its channel, round-robin over the channels
        that have something and are not blocked; None when there is nothing. Taking a buffer gives
        its credit back."""
        ...

    def poll_barrier(self) -> tuple[int, CheckpointBarrier] | None:
        """The next barrier of a channel that is not blocked, if no records and no watermark are
        before it, and the index of its channel; None when there is none. For a task whose outputs
        are full.

        It overtakes a change of activity, a latency marker, and the end of the data with its
        watermark: they say nothing of the records before the barrier, and come again after a
        restore. Other watermarks it does not: by them it is decided which records behind are late.
        Never a terminal one, which is behind the end, unless its task halts."""
        ...

    def poll_announced(self) -> tuple[int, CheckpointBarrier] | None:
        """The next barrier that came and may overtake, and the index of its channel; each is told
        once, and stays where it waits. None when there is none."""
        ...

    def record(self, checkpoint_id: CheckpointId, channels: Iterable[int]) -> None:
        """Its barrier overtakes what waits in `channels`, and all that still comes there before it.
        It is taken out where it comes. One recording at a time."""
        ...

    def poll_recorded(self) -> int | None:
        """The next of the channels being recorded whose barrier has come; None when there is
        none."""
        ...

    def end_recording(self) -> tuple[Mapping[int, Sequence[Kept]], bool]:
        """What was recorded, by channel and in order, and whether one of the barriers had overtaken
        at its sender. Nothing if nobody records."""
        ...

    def block(self, index: int) -> None:
        """Do not poll this channel (barrier alignment); its credits are not renewed meanwhile."""
        ...

    def unblock_all(self) -> None: ...


class Endpoint(Protocol):
    """A task's end of the exchange."""

    @property
    def address(self) -> Address: ...

    @property
    def gate(self) -> InputGate: ...

    @property
    def outputs(self) -> Mapping[ChannelId, OutputChannel]: ...

    def connect(self, wiring: Wiring) -> None:
        """Drop all channels of former attempts and open those of `wiring`. Does not wait: peers may
        connect later. Raises TransportError if a peer cannot be reached within its deadline, from
        `pump`."""
        ...

    def pump(self, timeout: float) -> bool:
        """Move bytes: accept, receive, send what credit allows, flush buffers that are due.

        Waits up to `timeout` seconds (0: not at all) for something to happen; returns whether
        anything did. Raises TransportError naming the peer when a connection broke."""
        ...

    def next_flush(self) -> float | None:
        """Seconds (may be <= 0) until a partly filled buffer must leave, None when all are
        empty."""
        ...

    def flush(self) -> None:
        """Close all partly filled buffers now."""
        ...

    def drained(self) -> bool:
        """Whether everything written has been handed to the peers."""
        ...

    def wake(self) -> None:
        """Make a waiting `pump` return. Thread-safe."""
        ...

    def statistics(self) -> ExchangeStatistics: ...

    def close(self) -> None: ...
