"""The sending side of a task: one writer per job edge, over the edge's channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.batch import Batch
from ...core.elements import (
    CheckpointBarrier,
    Control,
    Element,
    EndOfData,
    StreamStatus,
    Watermark,
)
from ...core.ids import EVEN, ChannelId, CheckpointId
from ...state.copies import own_batch
from ..exchange.endpoint import OutputChannel
from ..exchange.key_load import KeyLoad
from ..exchange.partitioners import make_selector
from ..graph.model import Broadcast, Forward, JobEdge, KeyGroups
from .deployment import TaskDeployment

_COPY = "records that are broadcast are copied for each subtask that reads them"


PRESSED = 8
"""So many buffers may wait in a channel while it is pressed."""


def is_in_order(edge: JobEdge) -> bool:
    """Whether barriers overtake nothing on it. What is broadcast has been read by some subtasks and
    not by others, and what is forwarded may have an order by key that only its subtasks know:
    neither could be given to other subtasks after a rescale (Flink does likewise)."""
    return isinstance(edge.partitioner, (Broadcast, Forward))


class EdgeWriter:
    """Partitions batches over the channels of one edge."""

    def __init__(self, edge: JobEdge, channels: Sequence[OutputChannel], d: TaskDeployment) -> None:
        self.edge = edge
        self.in_order = is_in_order(edge)
        self.pressed = False
        """Whether it takes more than it should, so that a snapshot can be taken soon."""
        self._to_all = isinstance(edge.partitioner, Broadcast) and not d.config.object_reuse
        """Whether each channel gets records of its own, equal to the others'."""
        self.key_load: KeyLoad | None = None
        """Of an edge on which keys choose between channels."""
        self._watermark: Watermark | None = None
        self._status = StreamStatus(True)
        self._end: EndOfData | None = None
        """The last of each that was sent to all."""
        self._wire(channels, d)

    def _wire(self, channels: Sequence[OutputChannel], d: TaskDeployment) -> None:
        self._channels = list(channels)
        self._next = d.task.subtask
        """The channel that got the last element of `send_to_one`."""
        key_groups = d.key_groups[self.edge.id]
        if isinstance(self.edge.partitioner, KeyGroups) and len(self._channels) > 1:
            named = d.config.metrics.hot_keys
            self.key_load = self.key_load or KeyLoad(key_groups, named, d.task.subtask)
        else:
            self.key_load = None
        self._selector = make_selector(
            self.edge.partitioner,
            len(self._channels),
            subtask=d.task.subtask,
            max_parallelism=key_groups,
            deal=d.deals.get(self.edge.id, EVEN),
            load=self.key_load,
            compiles=d.config.compile_functions,
        )

    def rewire(self, channels: Sequence[OutputChannel], d: TaskDeployment) -> None:
        """It has these channels from now on, as new as at the start of a task: where its event time
        is, and whether it has ended, they are told first."""
        self._wire(channels, d)
        if self._watermark is not None:
            self.broadcast(self._watermark)
        if not self._status.active:
            self.broadcast(self._status)
        if self._end is not None:
            self.broadcast(self._end)

    def emit(self, batch: Batch) -> None:
        if self._to_all:
            for position, channel in enumerate(self._channels):
                channel.write(own_batch(batch, _COPY) if position else batch)
            return
        for position, part in self._selector.split(batch):
            if len(part):
                self._channels[position].write(part)

    def broadcast(self, element: Control) -> None:
        match element:
            case Watermark():
                self._watermark = element
            case StreamStatus():
                self._status = element
            case EndOfData():
                self._end = element
        for channel in self._channels:
            channel.write_control(element)

    def send_barrier(
        self, barrier: CheckpointBarrier, ahead: bool
    ) -> list[tuple[OutputChannel, list[Element]]]:
        """`ahead`: of all that waits to be sent, which is returned by channel."""
        if not ahead or self.in_order:
            self.broadcast(barrier)
            return []
        return [(channel, channel.overtake(barrier)) for channel in self._channels]

    def holding(self, checkpoint_id: CheckpointId) -> list[OutputChannel]:
        """The channels in which its barrier waits and may still be put ahead."""
        if self.in_order:
            return []
        return [channel for channel in self._channels if channel.holds(checkpoint_id)]

    def send_to_one(self, element: Control) -> None:
        """To one channel, in turn: what all would get is as many times as many at each exchange."""
        self._next = (self._next + 1) % len(self._channels)
        self._channels[self._next].write_control(element)

    @property
    def available(self) -> bool:
        if self.pressed:
            return all(channel.waits_less_than(PRESSED) for channel in self._channels)
        for channel in self._channels:  # noqa: SIM110 - asked at each step of each task
            if not channel.available:
                return False
        return True


def key_loads(writers: Mapping[int, EdgeWriter]) -> dict[int, dict[str, Any]]:
    """By edge id, what was seen of keys where they choose between channels."""
    return {
        edge: writer.key_load.report()
        for edge, writer in writers.items()
        if writer.key_load is not None
    }


def edge_writers(
    deployment: TaskDeployment, channels: Mapping[ChannelId, OutputChannel]
) -> dict[int, EdgeWriter]:
    """A writer per job edge the task feeds, by edge id."""
    return {
        edge.id: EdgeWriter(edge, _channels_of(edge, deployment, channels), deployment)
        for edge in deployment.edges
    }


def rewire(
    writers: Mapping[int, EdgeWriter],
    deployment: TaskDeployment,
    channels: Mapping[ChannelId, OutputChannel],
) -> None:
    """The task has other channels from now on."""
    for writer in writers.values():
        writer.rewire(_channels_of(writer.edge, deployment, channels), deployment)


def _channels_of(
    edge: JobEdge, deployment: TaskDeployment, channels: Mapping[ChannelId, OutputChannel]
) -> list[OutputChannel]:
    mine = (channel for channel in deployment.outputs if channel.edge == edge.id)
    return [channels[c.id] for c in sorted(mine, key=lambda channel: channel.source_index)]
