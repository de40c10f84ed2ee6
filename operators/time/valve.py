"""The watermark valve: many input channels, one event time (Flink's StatusWatermarkValve's rules).

The valve's time is the minimum over the channels that are active and aligned, and never goes back.
An idle channel holds nobody back. One that comes back from idle may have fallen behind; it counts
again (is *aligned*) only once its own watermark has caught up with what the valve gave out, so that
it cannot stall the others meanwhile. When every channel is idle, the valve gives out the greatest
watermark of any channel (nobody is left who could be slower) and turns idle itself.

A channel that has ended is active with the greatest watermark. So, as in Flink, when one channel
ends while all others are idle, event time is over: records of those others will come late.

Pure: channel events in, `Watermark` and `StreamStatus` elements out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, StreamStatus, Watermark
from ...core.errors import IllegalTransitionError

Action: TypeAlias = Watermark | StreamStatus


@dataclass(slots=True)
class _Channel:
    """`aligned` implies `active`; `ended` implies active, aligned and the greatest watermark."""

    watermark: int = MIN_TIMESTAMP
    active: bool = True
    aligned: bool = True
    ended: bool = False


class WatermarkValve:
    """Combines the event time of `channels` inputs. Used by a task for its input gate."""

    def __init__(self, channels: int, watermark: int = MIN_TIMESTAMP) -> None:
        """`watermark`: given out by the valve before this one."""
        self._channels = [_Channel() for _ in range(channels)]
        self._begun = watermark
        self.watermark: int = watermark
        """The last watermark given out; never decreases."""
        self.active: bool = True
        """The last status given out: whether any channel is active."""

    def on_watermark(self, index: int, timestamp: int) -> list[Action]:
        """Channel `index` sent a watermark. Ignored if the channel is idle or the watermark old."""
        channel = self._open_channel(index)
        if not channel.active or timestamp <= channel.watermark:
            return []
        channel.watermark = timestamp
        if not channel.aligned and timestamp >= self.watermark:
            channel.aligned = True
        return self._advance_to_minimum()

    def on_status(self, index: int, active: bool) -> list[Action]:
        """Channel `index` turned idle or active; no effect if it is so already."""
        channel = self._open_channel(index)
        if channel.active == active:
            return []
        channel.active = active
        return self._became_active(channel) if active else self._became_idle(channel)

    def on_end(self, index: int) -> list[Action]:
        """Channel `index` has ended: nothing may follow on it."""
        channel = self._open_channel(index)
        actions: list[Action] = []
        if not channel.active:
            channel.active = True
            actions = self._became_active(channel)
        channel.watermark = MAX_TIMESTAMP
        channel.aligned = True
        channel.ended = True
        return actions + self._advance_to_minimum()

    def channel(self, index: int) -> tuple[int, bool]:
        """The watermark of a channel, and whether it is active."""
        channel = self._channels[index]
        return channel.watermark, channel.active

    def validate(self) -> None:
        """Assert the invariants."""
        for channel in self._channels:
            assert channel.active or not channel.aligned
            behind = channel.watermark < self.watermark and self.watermark > self._begun
            assert not (channel.aligned and behind)
            assert not channel.ended or (channel.aligned and channel.watermark == MAX_TIMESTAMP)
        if self._channels:
            assert self.active == any(channel.active for channel in self._channels)

    def _open_channel(self, index: int) -> _Channel:
        channel = self._channels[index]
        if channel.ended:
            raise IllegalTransitionError(
                f"input channel {index} of {len(self._channels)} sent event time after its end"
            )
        return channel

    def _became_active(self, channel: _Channel) -> list[Action]:
        channel.aligned = channel.watermark >= self.watermark
        if self.active:  # where none was aligned, this one may be the first
            return self._advance_to_minimum()
        self.active = True
        return [StreamStatus(True)]

    def _became_idle(self, channel: _Channel) -> list[Action]:
        channel.aligned = False
        if any(other.active for other in self._channels):
            return self._advance_to_minimum()
        self.active = False
        greatest = max(other.watermark for other in self._channels)
        return [*self._advance(greatest), StreamStatus(False)]

    def _advance_to_minimum(self) -> list[Action]:
        aligned = [channel.watermark for channel in self._channels if channel.aligned]
        return self._advance(min(aligned)) if aligned else []

    def _advance(self, timestamp: int) -> list[Action]:
        if timestamp <= self.watermark:
            return []
        self.watermark = timestamp
        return [Watermark(timestamp)]
