"""One of the two processes of `machines`: sends to an address, or listens and takes."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from strom.core.batch import ColumnBatch
from strom.core.config import ExchangeConfig
from strom.core.elements import EndOfData
from strom.core.ids import ChannelId, TaskId, VertexId
from strom.engine.exchange.encryption import JobCertificate
from strom.engine.exchange.endpoint import Wiring
from strom.engine.exchange.listener import Site, SocketAddress
from strom.engine.exchange.sockets import SocketEndpoint
from strom.engine.graph.model import Channel
from strom.engine.hosts import lean

from .machines import BATCH_ROWS

SECRET = b"of a measurement, no job's secret"
SENDER, RECEIVER = TaskId(VertexId("sender"), 0), TaskId(VertexId("receiver"), 0)
CHANNEL = Channel(ChannelId(0), 0, SENDER, RECEIVER, 0, 0)

WARM_SHARE = 0.4
"""Of the time: until then nothing counts, for TCP finds out what the network takes."""


def main() -> None:
    asked = json.load(sys.stdin)
    pa.set_cpu_count(1)
    lean.keep_freed_memory()
    lean.settle()
    task = SENDER if "address" in asked else RECEIVER
    pair = asked.get("certificate")
    certificate = None if pair is None else JobCertificate(*(part.encode() for part in pair))
    site = Site(asked["host"], asked["host"])
    config = ExchangeConfig(**asked["exchange"])
    endpoint = SocketEndpoint(task, config, SECRET, None, site, certificate)
    told = _send(endpoint, asked) if task is SENDER else _take(endpoint, asked["seconds"])
    print(json.dumps({**told, "cpu_s": time.process_time()}), flush=True)
    endpoint.close()


def _send(endpoint: SocketEndpoint, asked: dict[str, Any]) -> dict[str, Any]:
    address = SocketAddress(**asked["address"])
    endpoint.connect(Wiring(0, [], [CHANNEL], {RECEIVER: address}))
    numbers = np.arange(BATCH_ROWS)
    names = [f"c{i}" for i in range(asked["columns"])]
    batch = ColumnBatch(pa.record_batch(dict.fromkeys(names, numbers)))
    output = endpoint.outputs[CHANNEL.id]
    output.write(batch)
    while not endpoint.statistics().buffers_sent:
        endpoint.pump(0.05)
    deadline = time.monotonic() + asked["seconds"]
    while time.monotonic() < deadline:
        if output.available:
            output.write(batch)
            endpoint.pump(0.0)
        else:
            endpoint.pump(0.05)
    output.write_control(EndOfData())
    while not endpoint.drained():
        endpoint.pump(0.05)
    return {}


def _take(endpoint: SocketEndpoint, seconds: float) -> dict[str, Any]:
    endpoint.connect(Wiring(0, [CHANNEL], [], {}))
    print(json.dumps(asdict(endpoint.address)), flush=True)
    warm = 0.0
    """When it begins to count; 0: nothing has come."""
    started = last = 0.0
    """When the first and the last of what counts came."""
    rows = bytes_before = 0
    while True:
        endpoint.pump(0.05)
        while (polled := endpoint.gate.poll()) is not None:
            element = polled[1]
            if isinstance(element, EndOfData):
                known = endpoint.statistics()
                return {
                    "rows": rows,
                    "bytes": known.bytes_received - bytes_before,
                    "seconds": last - started,
                    "all_bytes": known.bytes_received,
                    "buffers": known.buffers_received,
                    "peak": known.peak_in_flight_bytes,
                }
            assert isinstance(element, ColumnBatch)
            last = time.monotonic()
            warm = warm or last + WARM_SHARE * seconds
            if started:
                rows += len(element)
        if warm and not started and last >= warm:  # all that came was taken, and nothing counts yet
            started, bytes_before = last, endpoint.statistics().bytes_received


if __name__ == "__main__":
    main()
