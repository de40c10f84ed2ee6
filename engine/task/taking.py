"""A checkpoint that a task takes: what its answer still waits for.

    state       frozen with the snapshot, written in the background
    inputs      what the barrier overtook in them: known when it has come on every channel
    outputs     what it overtook there: known at once if it went ahead; if it went in its turn it
                may still be put ahead, until it has left

What was on its way is written when all of it is known, behind the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...checkpoint.cancellation import Cancellation
from ...checkpoint.handles import SubtaskSnapshot
from ...checkpoint.in_flight import Place, Waiting
from ...core.elements import CheckpointBarrier, Element
from ..exchange.endpoint import OutputChannel
from ..exchange.kept import Kept
from ..graph.model import Channel
from .in_flight import captured, made
from .intake import InputState

Passed = Iterable[tuple[OutputChannel, Sequence[Element]]]


@dataclass
class Taking:
    """From its snapshot on. `recording`: whether a barrier is still to come; `passed`: whether
    barriers have overtaken at their senders."""

    barrier: CheckpointBarrier
    cancellation: Cancellation
    started: float
    due_ms: int | None
    sync_ms: float = 0.0
    alignment_ms: float = 0.0
    state: SubtaskSnapshot | None = None
    recording: bool = False
    passed: bool = False
    inputs: InputState | None = None
    outputs: list[Waiting] = field(default_factory=list)
    holding: list[OutputChannel] = field(default_factory=list)
    """Where the barrier waits and may be put ahead."""
    finishing: bool = False
    """Whether what was on its way is being written."""

    @property
    def settled(self) -> bool:
        """Whether the state is written, and all is known that was on its way."""
        return self.state is not None and not self.recording and not self.holding

    def recorded(self, items: Mapping[int, Sequence[Kept]]) -> None:
        """Nothing more is to come before the barrier; this came since the snapshot."""
        self.recording = False
        if self.inputs is not None:
            for index, found in items.items():
                self.inputs.channels[index] += map(made, found)
                self.inputs.records |= bool(found)

    def overtook(self, passed: Passed, names: Mapping[int, str]) -> None:
        """In outputs. `names`: of edges."""
        for channel, elements in passed:
            if elements:
                place = _place(channel.channel, names, unsent=True)
                self.outputs.append((place, [captured(element) for element in elements]))

    def in_flight(self, inputs: Sequence[Channel], names: Mapping[int, str]) -> list[Waiting]:
        """All that was on its way; empty if nothing was. Once it is settled."""
        state = self.inputs
        if state is None or not (state.records or self.passed):
            return self.outputs
        places = [_place(channel, names, unsent=False) for channel in inputs]
        return [*state.lanes, *zip(places, state.channels, strict=True), *self.outputs]


def _place(channel: Channel, names: Mapping[int, str], unsent: bool) -> Place:
    return Place(names[channel.edge], channel.source.subtask, channel.target.subtask, unsent)
