"""Wiring for the tests of endpoints."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from strom.core.batch import ColumnBatch
from strom.core.elements import Element, Watermark
from strom.core.ids import ChannelId, TaskId, VertexId
from strom.engine.exchange.encryption import JobCertificate, issue
from strom.engine.exchange.endpoint import Wiring
from strom.engine.exchange.listener import SocketAddress
from strom.engine.exchange.sockets import SocketEndpoint
from strom.engine.graph.model import Channel

SECRET = b"the secret of the job in the tests"


@cache
def job_certificate() -> JobCertificate:
    return issue()


class TcpOnly(SocketEndpoint):
    """Hides its unix socket from peers, as if it were on another machine."""

    @property
    def address(self) -> SocketAddress:
        return dataclasses.replace(super().address, unix_path=None)


def task(name: str, subtask: int = 0) -> TaskId:
    return TaskId(VertexId(name), subtask)


def channel(number: int, source: TaskId, target: TaskId, target_index: int) -> Channel:
    return Channel(ChannelId(number), 0, source, target, 0, target_index)


def batch(start: int, rows: int, width: int = 1) -> ColumnBatch:
    """Rows numbered from `start`, `8 * width` bytes each."""
    numbers = np.arange(start, start + rows)
    return ColumnBatch(pa.record_batch({f"c{i}": numbers for i in range(width)}))


def numbers(element: Element) -> list[int]:
    assert isinstance(element, ColumnBatch)
    return element.data.column(0).to_pylist()  # type: ignore[no-any-return]


def through(proxy: Any) -> SocketAddress:
    """Where peers reach an endpoint that a proxy stands before."""
    host, port = proxy.address
    return SocketAddress(host, port, None, "another machine")


def wire(
    attempt: int,
    endpoints: dict[TaskId, Any],
    channels: list[Channel],
    addresses: dict[TaskId, SocketAddress] | None = None,
) -> None:
    """Connect all endpoints; channels in order of id. `addresses`: of those that are reached by
    another than their own."""
    peers = {name: endpoint.address for name, endpoint in endpoints.items()} | (addresses or {})
    for name, endpoint in endpoints.items():
        inputs = sorted((c for c in channels if c.target == name), key=lambda c: c.target_index)
        outputs = [c for c in channels if c.source == name]
        endpoint.connect(Wiring(attempt, inputs, outputs, peers))


def settle(*endpoints: Any, rounds: int = 50) -> None:
    """Pump until nothing has moved for a few rounds in a row (sockets need more than one)."""
    quiet = 0
    while quiet < 3 and rounds:
        wait = 0.001 if quiet else 0.0
        moved = [endpoint.pump(wait) for endpoint in endpoints]
        quiet = 0 if any(moved) else quiet + 1
        rounds -= 1


def take_all(endpoint: Any) -> list[tuple[int, Any]]:
    """Everything the gate gives, batches as lists of numbers."""
    got = []
    while (polled := endpoint.gate.poll()) is not None:
        index, element = polled
        got.append((index, numbers(element) if isinstance(element, ColumnBatch) else element))
    return got


def rows_of(got: list[tuple[int, Any]], index: int = 0) -> list[int]:
    """All numbers of one channel in order of arrival."""
    return [n for i, v in got if i == index and isinstance(v, list) for n in v]


def marks_of(got: list[tuple[int, Any]], index: int = 0) -> list[int]:
    """The watermarks of one channel, each of which must tell how many rows came before it."""
    marks, seen = [], 0
    for i, value in got:
        if i != index:
            continue
        if isinstance(value, list):
            seen += len(value)
        elif isinstance(value, Watermark):
            assert value.timestamp == seen
            marks.append(seen)
    return marks
