"""Who falls silent on another machine is found; who computes for long is not taken for dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from exchange_kit import (
    SECRET,
    TcpOnly,
    batch,
    channel,
    job_certificate,
    settle,
    take_all,
    task,
    through,
    wire,
)
from strom.core.clock import Clock, SystemClock, VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.errors import TransportError
from strom.engine.exchange.heartbeats import DOUBT_S, Heartbeats, Pulse, StandIn
from strom.engine.exchange.sockets import SocketEndpoint
from strom.testing.machines.proxy import Proxy

A, B = task("a"), task("b")
LINK = channel(0, A, B, 0)
TIMEOUT_S = 50.0
INTERVAL_S = 10.0


class Wire:
    """Counts what is said on it."""

    def __init__(self) -> None:
        self.received = 0
        self.beats = 0

    def beat(self) -> None:
        self.beats += 1


def heartbeats(interval_s: float = INTERVAL_S, timeout_s: float = TIMEOUT_S) -> Heartbeats[str]:
    return Heartbeats(timedelta(seconds=interval_s), timedelta(seconds=timeout_s))


def test_a_peer_is_dead_when_it_was_silent_at_two_looks() -> None:
    pulse = Pulse(100.0)
    assert pulse.look(5, 110.0, TIMEOUT_S) is None  # bytes came
    assert pulse.look(5, 159.0, TIMEOUT_S) is None
    assert pulse.look(5, 160.0, TIMEOUT_S) is None  # too long, for the first time
    assert pulse.look(6, 161.0, TIMEOUT_S) is None  # it was on its way
    assert pulse.look(6, 211.0, TIMEOUT_S) is None
    assert pulse.look(6, 212.0, TIMEOUT_S) == 51.0


def test_all_are_told_at_each_interval_and_the_silent_are_found_in_time() -> None:
    beats, alive, silent = heartbeats(), Wire(), Wire()
    beats.add("alive", alive, 0.0)
    beats.add("silent", silent, 0.0)
    now, dead = 0.0, []
    while not dead:
        now = beats.due
        alive.received += 24
        dead = beats.look(now)
        assert now <= TIMEOUT_S + INTERVAL_S + DOUBT_S
    assert dead == [("silent", now)]
    assert now >= TIMEOUT_S
    assert alive.beats == silent.beats == now // INTERVAL_S


def test_a_short_timeout_has_heartbeats_enough() -> None:
    beats, wire = heartbeats(interval_s=10, timeout_s=3), Wire()
    beats.add("peer", wire, 0.0)
    for second in range(1, 10):
        assert beats.due == second
        wire.received += 1
        assert beats.look(float(second)) == []
    assert wire.beats == 9


def test_nothing_is_due_without_a_peer() -> None:
    beats = heartbeats()
    beats.add("peer", Wire(), 0.0)
    beats.remove("peer")
    beats.remove("peer")
    assert beats.due == float("inf")


def test_a_stand_in_leaves_who_is_at_work_alone() -> None:
    lock, beaten = threading.Lock(), threading.Event()
    stand_in = StandIn(0.001, lock, beaten.set)
    assert beaten.wait(30)
    with lock:
        beaten.clear()
        assert not beaten.wait(0.05)
    assert beaten.wait(30)
    stand_in.close()


@contextmanager
def joined(
    a_clock: Clock, b_clock: Clock, encrypted: bool = False, config: ExchangeConfig | None = None
) -> Iterator[tuple[SocketEndpoint, SocketEndpoint, Proxy]]:
    """Two endpoints with a proxy between."""
    certificate = job_certificate() if encrypted else None
    with ExitStack() as stack:
        a, b = (
            TcpOnly(t, config or ExchangeConfig(), SECRET, clock, certificate=certificate)
            for t, clock in ((A, a_clock), (B, b_clock))
        )
        stack.callback(b.close)
        stack.callback(a.close)
        proxy = stack.enter_context(Proxy((b.address.host, b.address.port)))
        wire(1, {A: a, B: b}, [LINK], {B: through(proxy)})
        until_connected(a, b)
        yield a, b, proxy


def until_connected(a: Any, b: Any) -> None:
    a.outputs[LINK.id].write(batch(0, 1))
    a.flush()
    got: list[Any] = []
    while not got:
        settle(a, b)
        got = take_all(b)
    settle(a, b)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_peer_that_vanished_without_a_word_is_found_by_both(encrypted: bool) -> None:
    clock = VirtualClock()
    with joined(clock, clock, encrypted) as (a, b, proxy):
        for _ in range(20):  # both live: nothing happens for 200 s
            clock.advance_ms(10_000)
            before = a_stream(a).received
            while a_stream(a).received == before:
                a.pump(0.01)
                b.pump(0.01)
        proxy.swallow()
        for endpoint, role in ((a, "receiver b"), (b, "sender a")):
            with pytest.raises(TransportError, match=rf"{role}\[0\] broke: nothing came"):
                go_on(endpoint, clock, 80)


def go_on(endpoint: Any, clock: VirtualClock, seconds: int) -> None:
    for _ in range(0, seconds, 10):
        clock.advance_ms(10_000)
        endpoint.pump(0.0)


def a_stream(endpoint: Any) -> Any:
    return next(iter(endpoint._outgoing.values())).stream


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_task_that_computes_for_long_is_not_taken_for_dead(encrypted: bool) -> None:
    """Its thread does not come to the exchange at all, for ten timeouts of its peer's clock."""
    clock = VirtualClock()
    config = ExchangeConfig(heartbeat_interval=timedelta(milliseconds=5))
    with joined(SystemClock(), clock, encrypted, config) as (_, b, _proxy):
        stream = next(iter(b._incoming.values())).stream
        assert stream is not None
        for _ in range(20):
            before = stream.received
            while stream.received == before:
                b.pump(0.01)
            clock.advance_ms(int(TIMEOUT_S * 500))
            b.pump(0.0)
