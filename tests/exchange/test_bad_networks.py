"""Slow, narrow and broken networks: all arrives, in order, or an error says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from exchange_kit import (
    SECRET,
    TcpOnly,
    batch,
    channel,
    job_certificate,
    numbers,
    task,
    through,
    wire,
)
from strom.core.config import ExchangeConfig
from strom.core.elements import EndOfData
from strom.core.errors import TransportError
from strom.engine.exchange.sockets import SocketEndpoint
from strom.testing.machines.proxy import Proxy

A, B = task("a"), task("b")
LINK = channel(0, A, B, 0)
CONFIG = ExchangeConfig(buffer_bytes=64 << 10, min_buffer_bytes=4 << 10)


class Stream:
    """Numbers from A, on a thread of its own, to B through a proxy."""

    def __init__(self, a: SocketEndpoint, b: SocketEndpoint, proxy: Proxy) -> None:
        self.a, self.b, self.proxy = a, b, proxy
        self.failure: TransportError | None = None
        self._next = 0
        self._expected = 0

    def send(self, batches: int, rows: int) -> threading.Thread:
        def run() -> None:
            try:
                output, left = self.a.outputs[LINK.id], batches
                while left or not self.a.drained():
                    if left and output.available:
                        output.write(batch(self._next, rows))
                        self._next += rows
                        left -= 1
                        if not left:
                            output.write_control(EndOfData())
                    self.a.pump(0.0 if left and output.available else 0.05)
            except TransportError as error:
                self.failure = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def take(self, until: int | None = None) -> None:
        """All to the end, or so many rows at least; in order."""
        while until is None or self._expected < until:
            self.b.pump(0.05)
            while (polled := self.b.gate.poll()) is not None:
                if isinstance(polled[1], EndOfData):
                    return
                got = numbers(polled[1])
                assert got == list(range(self._expected, self._expected + len(got)))
                self._expected += len(got)


@contextmanager
def stream(encrypted: bool = False, **bad: Any) -> Iterator[Stream]:
    certificate = job_certificate() if encrypted else None
    with ExitStack() as stack:
        a, b = (TcpOnly(t, CONFIG, SECRET, certificate=certificate) for t in (A, B))
        stack.callback(b.close)
        stack.callback(a.close)
        proxy = stack.enter_context(Proxy((b.address.host, b.address.port), **bad))
        wire(1, {A: a, B: b}, [LINK], {B: through(proxy)})
        yield Stream(a, b, proxy)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("bad", [{"delay_s": 0.02}, {"bytes_per_s": 8e6}], ids=["late", "narrow"])
def test_all_arrives_in_order(encrypted: bool, bad: dict[str, float]) -> None:
    with stream(encrypted, **bad) as one:
        sending = one.send(batches=60, rows=3000)
        one.take()
        one.b.pump(0.0)
        sending.join(60)
        assert one.failure is None
        assert one.a.drained()
        assert one.b.statistics().peak_in_flight_bytes <= one.b.statistics().bound_bytes


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_stands_still_for_a_while_goes_on(encrypted: bool) -> None:
    with stream(encrypted) as one:
        sending = one.send(batches=400, rows=3000)
        one.take(until=30_000)
        one.proxy.swallow()
        for _ in range(20):
            one.b.pump(0.02)
        one.proxy.resume()
        one.take()
        sending.join(60)
        assert one.failure is None


def test_a_connection_that_breaks_is_an_error_on_both_sides() -> None:
    with stream() as one:
        sending = one.send(batches=100_000, rows=3000)
        one.take(until=30_000)
        one.proxy.reset()
        with pytest.raises(TransportError, match=r"sender a\[0\] broke"):
            one.take()
        sending.join(60)
        assert "receiver b[0] broke" in str(one.failure)
