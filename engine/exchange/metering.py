"""Counting what an endpoint moves and holds."""

from __future__ import annotations

from ...core.config import ExchangeConfig
from .endpoint import ExchangeStatistics

OUTGOING_LIMIT = 256 << 10
"""A connection takes no further buffer while more bytes than this wait for its socket."""

SENDER_PEER_BOUND = 2
"""Buffers an outgoing connection may hold: one half-sent and one just taken."""


class InFlight:
    """Bytes held at one endpoint: inputs, outputs and half-sent frames together."""

    __slots__ = ("current", "peak")

    def __init__(self) -> None:
        self.current = 0
        """Never negative."""
        self.peak = 0
        """Maximum of `current` so far."""

    def add(self, count: int) -> None:
        self.current += count
        if self.current > self.peak:
            self.peak = self.current

    def sub(self, count: int) -> None:
        self.current -= count


class Traffic:
    """Totals since the endpoint was made."""

    __slots__ = ("buffers_received", "buffers_sent", "bytes_received", "bytes_sent")

    def __init__(self) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self.buffers_sent = 0
        self.buffers_received = 0


def frame_limit(config: ExchangeConfig) -> int:
    """Larger encoded buffers are cut before they leave; only a single record may exceed it.

    The slack over `buffer_bytes` is for metadata and for estimates that were a little low."""
    return config.buffer_bytes + config.buffer_bytes // 8 + (64 << 10)


def bound(config: ExchangeConfig, inputs: int, writes: list[int], connections: int) -> int:
    """What one endpoint can hold at most.

    `writes`: for each output channel the most it was given so far between two looks at `available`:
    about a batch, for an operator emits no more in one step. Inputs are bounded by credit; an
    output by one buffer (`available` turns false) plus that; a connection by what it may take.
    """
    buffers = inputs * config.exclusive_buffers + (config.floating_buffers if inputs else 0)
    held = sum(config.buffer_bytes + write for write in writes)
    outgoing = connections * (SENDER_PEER_BOUND * frame_limit(config) + OUTGOING_LIMIT)
    return buffers * frame_limit(config) + held + outgoing


def statistics(traffic: Traffic, meter: InFlight, bound_bytes: int) -> ExchangeStatistics:
    return ExchangeStatistics(
        traffic.bytes_sent,
        traffic.bytes_received,
        traffic.buffers_sent,
        traffic.buffers_received,
        meter.current,
        meter.peak,
        bound_bytes,
    )
