"""`machines`: what the exchange carries between two tasks on machines of their own.

Two processes, each in a network namespace (`strom.testing.machines`), one sends columns to the
other for some seconds. No Ray, no operators: the exchange alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from strom.engine.exchange.encryption import issue
from strom.testing.machines.network import Machine, Network, missing

Line = dict[str, Any]

BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Way:
    """How the two reach each other. `late_s` None: both in one namespace, by the unix socket."""

    name: str
    late_s: float | None
    encrypted: bool


def ways(late_ms: float) -> list[Way]:
    late_s = late_ms / 1000
    return [
        Way("one machine", None, False),
        Way("network", 0.0, False),
        Way("network, encrypted", 0.0, True),
        Way(f"network, {late_ms:g} ms late", late_s, False),
        Way(f"network, {late_ms:g} ms late, encrypted", late_s, True),
    ]


def measure_machines(
    seconds: float, late_ms: float, columns: int, exchange: dict[str, Any]
) -> Iterator[Line]:
    """A line for each way. `columns`: of 8 bytes in a record. `exchange`: fields of ExchangeConfig.
    SystemExit where there are no namespaces."""
    if (lacking := missing()) is not None:
        raise SystemExit(f"machines of its own: there is no {lacking}")
    for way in ways(late_ms):
        measured = _measured(way, seconds, columns, exchange)
        yield {"name": "machines", "way": way.name, "record_bytes": 8 * columns, **measured}


def _measured(way: Way, seconds: float, columns: int, exchange: dict[str, Any]) -> Line:
    with ExitStack() as stack:
        network = stack.enter_context(Network(2, way.late_s or 0.0))
        there, here = network.machines
        if way.late_s is None:
            here = there
        asked: Line = {"seconds": seconds, "columns": columns, "exchange": exchange}
        if way.encrypted:
            made = issue()
            asked["certificate"] = [made.certificate.decode(), made.key.decode()]
        receiver = _peer(there, {**asked, "host": there.address}, stack)
        assert receiver.stdout is not None
        address = json.loads(receiver.stdout.readline())
        sender = _peer(here, {**asked, "host": here.address, "address": address}, stack)
        sent, received = _last(sender), _last(receiver)
    cpu_s = sent["cpu_s"] + received["cpu_s"]
    moved = received["bytes"]
    return {
        "mb_per_s": round(moved / received["seconds"] / 1e6, 1),
        "records_per_s": round(received["rows"] / received["seconds"]),
        "cpu_s_per_gb": round(cpu_s / (received["all_bytes"] / 1e9), 3),
        "buffer_kb": round(received["all_bytes"] / received["buffers"] / 1e3, 1),
        "in_flight_mb": round(received["peak"] / 1e6, 1),
    }


def _peer(machine: Machine, asked: Line, stack: ExitStack) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"{__package__}.machines_peer"]
    peer = machine.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(peer.wait)
    stack.callback(peer.kill)
    assert peer.stdin is not None
    peer.stdin.write(json.dumps(asked))
    peer.stdin.close()
    return peer


def _last(peer: subprocess.Popen[str]) -> Line:
    assert peer.stdout is not None
    said = peer.stdout.read().splitlines()
    if not said:
        raise SystemExit("a process of the measurement ended before it said anything")
    line: Line = json.loads(said[-1])
    return line
