"""The sending side of a task: one writer per job edge, over the edge's channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.batch import Batch
from ...core.elements import Control
from ...core.ids import ChannelId
from ...state.copies import own_batch
from ..exchange.endpoint import OutputChannel
from ..exchange.partitioners import make_selector
from ..graph.model import Broadcast, JobEdge
from .deployment import TaskDeployment

_COPY = "records that are broadcast are copied for each subtask that reads them"


class EdgeWriter:
    """Partitions batches over the channels of one edge."""

    def __init__(self, edge: JobEdge, channels: Sequence[OutputChannel], d: TaskDeployment) -> None:
        self.edge = edge
        self._channels = list(channels)
        self._next = d.task.subtask
        """The channel that got the last element of `send_to_one`."""
        self._to_all = isinstance(edge.partitioner, Broadcast) and not d.config.object_reuse
        """Whether each channel gets records of its own, equal to the others'."""
        self._selector = make_selector(
            edge.partitioner,
            len(self._channels),
            subtask=d.task.subtask,
            max_parallelism=d.key_groups[edge.id],
        )

    def emit(self, batch: Batch) -> None:
        if self._to_all:
            for position, channel in enumerate(self._channels):
                channel.write(own_batch(batch, _COPY) if position else batch)
            return
        for position, part in self._selector.split(batch):
            if len(part):
                self._channels[position].write(part)

    def broadcast(self, element: Control) -> None:
        for channel in self._channels:
            channel.write_control(element)

    def send_to_one(self, element: Control) -> None:
        """To one channel, in turn: what all would get is as many times as many at each exchange."""
        self._next = (self._next + 1) % len(self._channels)
        self._channels[self._next].write_control(element)

    @property
    def available(self) -> bool:
        return all(channel.available for channel in self._channels)


def edge_writers(
    deployment: TaskDeployment, channels: Mapping[ChannelId, OutputChannel]
) -> dict[int, EdgeWriter]:
    """A writer per job edge the task feeds, by edge id."""
    writers: dict[int, EdgeWriter] = {}
    for edge in deployment.edges:
        mine = sorted(
            (c for c in deployment.outputs if c.edge == edge.id), key=lambda c: c.source_index
        )
        writers[edge.id] = EdgeWriter(edge, [channels[c.id] for c in mine], deployment)
    return writers
