"""Buffers in memory that two tasks of one machine share: what is kept stays as it was, nobody waits
for a slot, and liars get nowhere."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from exchange_kit import SECRET, TcpOnly, batch, channel, numbers, settle, task, wire
from strom.core.batch import ColumnBatch
from strom.core.clock import VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.errors import TransportError
from strom.engine.exchange import shared_memory, stream
from strom.engine.exchange.shared_memory import LEAST, MEMORY, PLACE, LentSlots, OwnSlots
from strom.engine.exchange.sockets import SocketEndpoint
from strom.engine.exchange.wire import HAS_TIMESTAMPS, SHARED, Kind, header, small_frame

A, B = task("a"), task("b")
LINK = channel(0, A, B, 0)
ROWS = 20_000
"""Of a batch that is large enough for a slot."""


class Pair:
    """Two wired endpoints."""

    def __init__(self, there: type[SocketEndpoint] = SocketEndpoint, **options: Any) -> None:
        config = ExchangeConfig(**options)
        clock = VirtualClock()
        self.a = SocketEndpoint(A, config, SECRET, clock)
        self.b = there(B, config, SECRET, clock)
        self.wire(1)

    def wire(self, attempt: int) -> None:
        wire(attempt, {A: self.a, B: self.b}, [LINK])
        settle(self.a, self.b)

    def send(self, start: int, rows: int = ROWS, width: int = 1) -> None:
        """One buffer."""
        self.a.outputs[LINK.id].write(batch(start, rows, width))
        self.a.flush()
        settle(self.a, self.b)

    def take(self) -> Any:
        polled = self.b.gate.poll()
        settle(self.a, self.b)
        return None if polled is None else polled[1]

    def passed(self, start: int, rows: int = ROWS) -> Any:
        self.send(start, rows)
        found = self.take()
        assert numbers(found) == list(range(start, start + rows))
        return found

    @property
    def own(self) -> OwnSlots | None:
        (connection,) = self.a._outgoing.values()
        return connection.slots

    @property
    def lent(self) -> int:
        """Slots that the sender knows to be lent."""
        settle(self.a, self.b)
        return 0 if self.own is None else sum(self.own._lent)

    def close(self) -> None:
        self.a.close()
        self.b.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def first_numbers(data: Any) -> list[int]:
    return np.frombuffer(data, np.int64)[:3].tolist()


def test_large_buffers_go_through_slots_and_small_ones_do_not(pair: Pair) -> None:
    small = pair.passed(0, 100)
    assert pair.lent == 0
    large = pair.passed(100)
    assert pair.lent == 1
    del large, small
    assert pair.lent == 0
    for start in range(50):  # slots are used again, the last one first
        assert pair.passed(start) is not None
    assert pair.lent == 0
    assert pair.own is not None
    assert len(pair.own._free) == pair.own.slots


def test_what_is_kept_stays_as_it_was_and_nobody_waits_for_a_slot(pair: Pair) -> None:
    kept = [pair.passed(start) for start in range(40)]
    assert pair.own is not None
    assert pair.lent == pair.own.slots < len(kept)
    assert [numbers(one)[0] for one in kept] == list(range(40))
    del kept[7]
    assert pair.lent == pair.own.slots - 1
    pair.passed(99)
    assert [numbers(one)[-1] - ROWS + 1 for one in kept] == [n for n in range(40) if n != 7]


@pytest.mark.parametrize(
    ("view", "read"),
    [
        (lambda one: one.data.column(0).slice(10, 20), pa.Array.to_pylist),
        (lambda one: one.data.column(0).to_numpy()[10:], list),
        (lambda one: one.data.column(0).buffers()[1].slice(80), first_numbers),
        (lambda one: memoryview(one.data.column(0).buffers()[1])[80:], first_numbers),
        (lambda one: pl.from_arrow(one.data)["c0"][10:], list),
        (lambda one: one.timestamps[10:], list),
    ],
    ids=["slice", "numpy", "buffer", "memoryview", "polars", "timestamps"],
)
def test_whoever_looks_at_a_part_has_the_slot(pair: Pair, view: Any, read: Any) -> None:
    made = batch(5, ROWS)
    pair.a.outputs[LINK.id].write(ColumnBatch(made.data, np.arange(5, ROWS + 5)))
    pair.a.flush()
    settle(pair.a, pair.b)
    kept = view(pair.take())
    assert pair.lent == 1
    for start in range(1000, 1020):
        pair.passed(start)
    assert read(kept)[:3] == [15, 16, 17]
    del kept
    assert pair.lent == 0


def test_it_is_read_only(pair: Pair) -> None:
    values = pair.passed(3).data.column(0)
    assert not values.buffers()[1].is_mutable
    with pytest.raises(ValueError, match="read-only"):
        np.frombuffer(values.buffers()[1], np.int64)[0] = 7


def test_a_slot_may_be_let_go_on_any_thread(pair: Pair) -> None:
    held = [pair.passed(1)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert pair.lent == 0


def test_any_order_of_keeping_and_letting_go(pair: Pair) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    kept: list[tuple[int, int, Any]] = []
    for start in range(300):
        rows = rng.choice([1, 100, 4096, 5000, ROWS, 120_000])
        pair.send(start, rows)
        while (found := pair.take()) is not None:
            kept.append((int(found.data.column(0)[0].as_py()), len(found), found))
        while kept and rng.random() < 0.55:
            kept.pop(rng.randrange(len(kept)))
        for first, count, one in rng.sample(kept, min(3, len(kept))):
            values = one.data.column(0).to_numpy()
            assert (values == np.arange(first, first + count)).all(), f"seed {seed}"
    kept.clear()
    del found, one, values
    assert pair.lent == 0, f"seed {seed}"


def test_an_attempt_that_is_over_leaves_what_was_kept() -> None:
    before = descriptors()
    pair = Pair()
    kept = pair.passed(4)
    pair.wire(2)
    assert numbers(kept)[0] == 4
    assert numbers(pair.passed(5))[0] == 5
    pair.close()
    assert numbers(kept)[0] == 4
    del kept, pair
    assert descriptors() == before


@pytest.mark.parametrize(
    ("there", "options"), [(TcpOnly, {}), (SocketEndpoint, {"shared_memory": False})]
)
def test_there_is_none_between_machines_or_where_it_is_off(
    there: type[SocketEndpoint], options: dict[str, Any]
) -> None:
    pair = Pair(there, **options)
    pair.passed(1)
    assert pair.own is None
    pair.close()


def refused(*arguments: Any, **options: Any) -> Any:
    raise OSError("not here")


def lost(one: stream.FrameStream) -> None:
    """As if the process could have no descriptor more: the kernel drops what came."""
    descriptor, one._descriptor = one._descriptor, None
    if descriptor is not None:
        os.close(descriptor)


def not_handed_over(one: stream.FrameStream, frame: bytes, descriptor: int) -> bool:
    return False


def test_a_receiver_that_is_gone_when_memory_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found out about, and not waited for."""
    original = stream.FrameStream.hand_over

    def behind_its_end(one: stream.FrameStream, frame: bytes, descriptor: int) -> bool:
        one.socket.shutdown(socket.SHUT_WR)  # sendmsg fails as on a connection that broke
        handed = original(one, frame, descriptor)
        assert not handed
        return handed

    monkeypatch.setattr(stream.FrameStream, "hand_over", behind_its_end)
    with pytest.raises(TransportError, match="connection to sender"):
        Pair()


@pytest.mark.parametrize("what", ["memfd_create", "seals", "mmap", "full", "descriptor"])
def test_where_it_cannot_be_had_buffers_go_through_the_socket(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    if what == "memfd_create":
        monkeypatch.delattr(os, "memfd_create")
    elif what == "seals":
        monkeypatch.setattr(shared_memory.fcntl, "fcntl", refused)
    elif what == "mmap":
        monkeypatch.setattr(shared_memory.mmap, "mmap", refused)
    elif what == "full":
        monkeypatch.setattr(stream.FrameStream, "hand_over", not_handed_over)
    else:
        monkeypatch.setattr(stream.FrameStream, "take_descriptor", lost)
    pair = Pair()
    for start in range(20):
        pair.passed(start)
    assert pair.lent == 0
    pair.close()
    del pair
    assert descriptors() == before


# --- liars --------------------------------------------------------------------------------------


def place(slot: int, size: int, flags: int = SHARED, rows: int = 1) -> bytes:
    said = PLACE.pack(slot, 0, size)
    return header(Kind.COLUMNS, len(said), 0, 0, rows, flags) + said


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (place(99, 64), "64 bytes are in slot 99"),
        (place(0, 63), "63 bytes are in slot 0"),
        (place(0, 1 << 40), "bytes are in slot 0"),
        (place(0, 64, SHARED | HAS_TIMESTAMPS, 9), "9 timestamps do not fit"),
        (place(0, 64) + place(0, 64), "columns arrived before their schema"),
        (header(Kind.COLUMNS, 8, 0, 0, 1, SHARED) + bytes(8), "0 bytes are in slot"),
        (small_frame(Kind.MEMORY, MEMORY.pack(1, 0, 4096)), "unexpected MEMORY"),
    ],
)
def test_a_sender_that_lies(pair: Pair, frame: bytes, why: str) -> None:
    (connection,) = pair.a._outgoing.values()
    connection.stream.queue([frame])
    connection.stream.flush()
    with pytest.raises(TransportError, match=why):
        settle(pair.b)


def test_a_slot_cannot_be_lent_twice(pair: Pair) -> None:
    kept = pair.passed(1)
    (connection,) = pair.a._outgoing.values()
    connection.stream.queue([place(0, 64)])
    connection.stream.flush()
    with pytest.raises(TransportError, match="in slot 0 of shared memory"):
        settle(pair.b)
    assert numbers(kept)[0] == 1


@pytest.mark.parametrize("slot", [0, 3, 1 << 40])
def test_a_receiver_that_gives_back_what_it_has_not(pair: Pair, slot: int) -> None:
    (connection,) = pair.b._incoming.values()
    connection.stream.queue([small_frame(Kind.FREE, slot.to_bytes(8, "little"))])
    connection.stream.flush()
    with pytest.raises(TransportError, match=f"gave back slot {slot} of shared memory"):
        settle(pair.a)


def test_a_receiver_that_accepts_again(pair: Pair) -> None:
    (connection,) = pair.b._incoming.values()
    connection.stream.queue([small_frame(Kind.MEMORY)])
    connection.stream.flush()
    with pytest.raises(TransportError, match="accepts shared memory again"):
        settle(pair.a)


@pytest.mark.parametrize(
    ("sealed", "size", "said"),
    [(False, 8192, (2, 0, 4096)), (True, 4096, (2, 0, 4096)), (True, 8192, (0, 0, 4096))],
)
def test_memory_that_could_be_taken_away_is_not_read(
    sealed: bool, size: int, said: tuple[int, int, int]
) -> None:
    before = descriptors()
    descriptor = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if sealed:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    with pytest.raises(TransportError, match="of another size than it says, or unsealed"):
        LentSlots(MEMORY.pack(*said), descriptor)
    assert descriptors() == before


def test_nonsense_about_memory() -> None:
    with pytest.raises(TransportError, match="does not say which"):
        LentSlots(b"12345678", os.memfd_create("x"))


def test_take_refuses_what_does_not_fit() -> None:
    own = OwnSlots(2, 3 * LEAST)
    piece = np.zeros(2 * LEAST, np.uint8)
    assert own.take([piece], len(piece)) is None, "nobody has accepted it"
    own.accept()
    assert own.take([piece[: LEAST - 8]], LEAST - 8) is None
    assert own.take([piece, piece], 4 * LEAST) is None
    assert [own.take([piece], len(piece)) is None for _ in range(3)] == [False, False, True]
    own.handed_over()


SENDER = """
import sys, time
sys.path.insert(0, {kits!r})
from exchange_kit import SECRET, batch, channel, task
from strom.core.config import ExchangeConfig
from strom.engine.exchange.endpoint import Wiring
from strom.engine.exchange.listener import SocketAddress
from strom.engine.exchange.sockets import SocketEndpoint
A, B = task("a"), task("b")
a = SocketEndpoint(A, ExchangeConfig(), SECRET)
a.connect(Wiring(1, [], [channel(0, A, B, 0)], {{B: SocketAddress(**{address!r})}}))
(connection,) = a._outgoing.values()
while connection.slots is None or not connection.slots._accepted:
    a.pump(0.05)
for n in range(1000):
    a.outputs[0].write(batch(n, 20_000))
    a.flush()
    a.pump(0.05)
"""


def test_a_sender_that_is_killed_takes_nothing_along(tmp_path: Path) -> None:
    b = SocketEndpoint(B, ExchangeConfig(), SECRET)
    wire(1, {B: b}, [LINK])
    address = {name: getattr(b.address, name) for name in ("host", "port", "unix_path", "node")}
    kits = str(Path(__file__).parents[1] / "kits")
    code = SENDER.format(kits=kits, address=address)
    with subprocess.Popen([sys.executable, "-c", code]) as sender:
        kept: list[Any] = []
        while len(kept) < 4:
            b.pump(5.0)
            while (polled := b.gate.poll()) is not None:
                kept.append(polled[1])
        sender.send_signal(signal.SIGKILL)
    (connection,) = b._incoming.values()
    assert connection.slots is not None
    with pytest.raises(TransportError, match="connection to sender"):
        settle(b, rounds=1000)
    assert [numbers(one)[0] for one in kept[:4]] == [0, 1, 2, 3]
    b.close()
