"""Sockets: strangers, liars, threads, and what is left behind."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exchange_kit import SECRET, batch, channel, settle, take_all, task, wire
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock, VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.elements import EndOfData, Watermark
from strom.core.errors import AuthenticationError, ConfigurationError, TransportError
from strom.core.ids import ChannelId
from strom.engine.exchange.admission import HANDSHAKE_DEADLINE_S, MOST_STRANGERS
from strom.engine.exchange.dialing import CONNECT_DEADLINE_S
from strom.engine.exchange.endpoint import Wiring
from strom.engine.exchange.handshake import (
    Hello,
    ReceiverHandshake,
    SenderHandshake,
    Verdict,
)
from strom.engine.exchange.listener import Site
from strom.engine.exchange.sockets import SocketEndpoint
from strom.engine.exchange.wire import HEADER, MAGIC, Kind, small_frame

A, B = task("a"), task("b")
LINK = channel(0, A, B, 0)
N1, N2 = b"1" * 32, b"2" * 32


def handshake(sender_secret: bytes, receiver_secret: bytes) -> tuple[Any, Any]:
    s = SenderHandshake(sender_secret, Hello(3, A, B), N1)
    r = ReceiverHandshake(receiver_secret, N2)
    data = s.start()
    while r.needed:
        piece, data = data[: r.needed], data[r.needed :]
        answer = r.receive(piece)
        data += s.receive(answer) if answer else b""
    return s, r


def test_both_sides_prove_themselves() -> None:
    s, r = handshake(SECRET, SECRET)
    assert r.hello == Hello(3, A, B)
    s.receive(r.answer(Verdict.ACCEPTED))
    assert s.verdict is Verdict.ACCEPTED
    assert s.needed == 0


def test_neither_side_accepts_another_secret() -> None:
    with pytest.raises(AuthenticationError, match="secret"):
        handshake(b"x" * 32, SECRET)
    s, r = handshake(SECRET, SECRET)
    answer = r.answer(Verdict.STALE)
    with pytest.raises(AuthenticationError, match="could not prove"):
        s.receive(bytes([Verdict.ACCEPTED]) + answer[1:])  # the verdict is under the proof


def test_a_recorded_proof_is_worthless() -> None:
    s = SenderHandshake(SECRET, Hello(3, A, B), N1)
    recorded = s.receive(N2)
    r = ReceiverHandshake(SECRET, b"3" * 32)
    hello = s.start()
    r.receive(hello[: r.needed])
    r.receive(hello[12:])
    with pytest.raises(AuthenticationError):
        r.receive(recorded)


@pytest.fixture
def pair() -> Any:
    """Two wired endpoints on a virtual clock."""
    clock = VirtualClock()
    config = ExchangeConfig()
    a, b = (SocketEndpoint(t, config, SECRET, clock) for t in (A, B))
    wire(1, {A: a, B: b}, [LINK])
    settle(a, b)
    yield a, b, clock
    a.close()
    b.close()


def stranger(endpoint: SocketEndpoint, unix: bool = False) -> socket.socket:
    address = endpoint.address
    if unix:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address.unix_path)
    else:
        connection = socket.create_connection((address.host, address.port))
    connection.settimeout(5)
    return connection


def still_works(a: Any, b: Any) -> None:
    a.outputs[LINK.id].write(batch(0, 2))
    a.flush()
    settle(a, b)
    assert take_all(b) == [(0, [0, 1])]


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(Path(os.environ["BOMB"])),)


@pytest.mark.parametrize("unix", [False, True])
def test_strangers_get_nothing_in(
    pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unix: bool
) -> None:
    a, b, _ = pair
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    bomb = pickle.dumps([Bomb()])
    bomb += bytes(-len(bomb) % 8)
    frame = HEADER.pack(MAGIC, Kind.OBJECTS, 0, 0, 0, 1, len(bomb)) + bomb
    liar = SenderHandshake(b"not the secret of this job", Hello(1, A, B), N1).start()
    attacks = [
        os.urandom(5000),
        frame,
        b"\0" * 100,
        liar + b"\0" * 32 + frame,
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    for number, attack in enumerate(attacks, 1):
        with stranger(b, unix) as connection:
            connection.sendall(attack)
            settle(a, b)
            assert b.rejected_handshakes == number
            received = connection.recv(4096) if attack.startswith(liar) else b""
            assert len(received) <= 32  # at most a challenge, never a proof
    assert take_all(b) == []
    assert not (tmp_path / "exploded").exists()
    still_works(a, b)


def test_a_replayed_conversation_gets_nothing_in(pair: Any) -> None:
    a, b, _ = pair
    recorded = SenderHandshake(SECRET, Hello(1, A, B), N1)
    said = [recorded.start(), recorded.receive(N2)]  # to another challenge than today's
    with stranger(b) as connection:
        connection.sendall(b"".join(said) + small_frame(Kind.CONTROL, b"\x05"))
        settle(a, b)
    assert b.rejected_handshakes == 1
    assert take_all(b) == []
    still_works(a, b)


def test_the_silent_are_dropped_in_time_and_the_many_push_each_other_out(pair: Any) -> None:
    a, b, clock = pair
    crowd = [stranger(b, unix=True) for _ in range(MOST_STRANGERS + 5)]
    settle(a, b)
    assert b.rejected_handshakes == 5
    still_works(a, b)
    clock.advance_ms(int(HANDSHAKE_DEADLINE_S * 1000) + 1)
    settle(a, b)
    assert b.rejected_handshakes == MOST_STRANGERS + 5
    for connection in crowd:
        connection.close()
    still_works(a, b)


def test_a_crowd_that_speaks_while_it_is_pushed_out_changes_nothing(pair: Any) -> None:
    """In one turn the oldest is heard and, before its turn, pushed out by those at the door."""
    a, b, _ = pair
    first = [stranger(b, unix=True) for _ in range(MOST_STRANGERS)]
    settle(a, b)
    second = [stranger(b, unix=True) for _ in range(MOST_STRANGERS)]
    for connection in first:
        connection.sendall(b"\0" * 100)
    settle(a, b)
    assert b.rejected_handshakes >= MOST_STRANGERS
    for connection in (*first, *second):
        connection.close()
    settle(a, b)
    assert b.rejected_handshakes == 2 * MOST_STRANGERS
    still_works(a, b)


def test_a_proved_peer_may_write_only_to_its_own_channels(pair: Any) -> None:
    a, b, _ = pair
    stream = next(iter(a._outgoing.values())).stream
    stream.queue([small_frame(Kind.CONTROL, b"\x05", channel=77)])
    stream.flush()
    with pytest.raises(TransportError, match=r"a\[0\].*channel 77"):
        settle(b)


def test_a_wrong_secret_never_connects() -> None:
    clock = VirtualClock()
    a = SocketEndpoint(A, ExchangeConfig(), b"y" * 32, clock)
    b = SocketEndpoint(B, ExchangeConfig(), SECRET, clock)
    wire(1, {A: a, B: b}, [LINK])
    settle(a, b)
    assert b.rejected_handshakes >= 1
    a.outputs[LINK.id].write_control(Watermark(1))
    clock.advance_ms(int(CONNECT_DEADLINE_S * 1000))
    with pytest.raises(TransportError, match=r"receiver b\[0\] is unreachable.*hung up"):
        settle(a, b)
    assert take_all(b) == []
    a.close()
    b.close()
    with pytest.raises(ConfigurationError, match="16 bytes"):
        SocketEndpoint(A, ExchangeConfig(), b"short")


def test_an_absent_receiver_is_retried_until_the_deadline() -> None:
    clock = VirtualClock()
    a = SocketEndpoint(A, ExchangeConfig(), SECRET, clock)
    gone = SocketEndpoint(B, ExchangeConfig(), SECRET, clock)
    address = gone.address
    gone.close()
    a.connect(Wiring(1, [], [LINK], {B: address}))
    for _ in range(25):
        a.pump(0)
        clock.advance_ms(1000)
    clock.advance_ms(10_000)
    with pytest.raises(TransportError, match=r"b\[0\] is unreachable.*[Rr]efused"):
        a.pump(0)
    a.close()


def test_wake_ends_a_wait_from_another_thread() -> None:
    endpoint = SocketEndpoint(A, ExchangeConfig(), SECRET, SystemClock())
    threading.Timer(0.05, endpoint.wake).start()
    assert endpoint.pump(30.0)
    endpoint.close()
    endpoint.wake()


def exchange_files() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("*strom-exchange-*"))


def test_close_leaves_no_descriptor_and_no_name() -> None:
    before, files = len(os.listdir("/proc/self/fd")), exchange_files()
    ends = {t: SocketEndpoint(t, ExchangeConfig(), SECRET) for t in (A, B)}
    addresses = [e.address for e in ends.values()]
    wire(1, ends, [LINK])
    settle(*ends.values())
    with stranger(ends[B]):
        settle(*ends.values())
        for end in ends.values():
            end.close()
            end.close()
    assert len(os.listdir("/proc/self/fd")) == before
    for address in addresses:
        with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
            late.connect(address.unix_path)
    assert exchange_files() == files


LISTEN_AND_WAIT = """
import sys
from strom.engine.exchange.listener import Listener, Site
listener = Listener(Site())
print(listener.address.unix_path.encode().hex(), flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN_AND_WAIT],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        name = bytes.fromhex(owner.stdout.readline().decode()).decode()
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(name)
        owner.kill()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(name)
    assert list(tmp_path.iterdir()) == []


def test_the_unix_socket_turns_other_users_away(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, _ = pair
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with stranger(b, unix=True) as connection:
        b.pump(0.0)
        assert connection.recv(1) == b""
    assert b.rejected_handshakes == 1
    still_works(a, b)


def test_an_endpoint_moves_between_attempts_and_is_reached_where_it_is(pair: Any) -> None:
    """As when another task of the job is placed on another machine."""
    a, b, _ = pair
    before = b.address
    b.move(Site("0.0.0.0", "localhost"))
    assert (b.address.host, b.address.unix_path) == ("localhost", before.unix_path)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((before.host, before.port))
    remote = replace(b.address, unix_path=None)
    a.connect(Wiring(2, [], [LINK], {B: remote}))
    b.connect(Wiring(2, [LINK], [], {}))
    settle(a, b)
    still_works(a, b)
    with pytest.raises(TransportError, match=r"cannot listen on '192.0.2.1'.*bind-host says where"):
        b.move(Site("192.0.2.1", "192.0.2.1"))
    still_works(a, b)


def test_an_endpoint_moves_while_its_thread_waits_and_who_is_connected_stays_so(pair: Any) -> None:
    """As that of a task that a rescale holds, when the job gets its first slot on another
    machine."""
    a, b, _ = pair
    waits = threading.Thread(target=b.pump, args=(600.0,))
    waits.start()
    b.move(Site("0.0.0.0", "localhost"))
    waits.join()
    still_works(a, b)
    a.connect(Wiring(2, [], [LINK], {B: replace(b.address, unix_path=None)}))
    b.connect(Wiring(2, [LINK], [], {}))
    settle(a, b)
    still_works(a, b)


@pytest.mark.parametrize("rows", [10, 3000, 200_000])
def test_two_threads_exchange_everything_within_bounds(rows: int) -> None:
    config = ExchangeConfig(buffer_bytes=64 << 10, min_buffer_bytes=4 << 10)
    ends = {t: SocketEndpoint(t, config, SECRET) for t in (A, B)}
    wire(1, ends, [LINK])
    count = 60
    errors: list[BaseException] = []

    def send() -> None:
        try:
            a = ends[A]
            out = a.outputs[ChannelId(0)]
            for i in range(count):
                out.write(batch(i * rows, rows))
                out.write_control(Watermark((i + 1) * rows))
                while not out.available:
                    a.pump(1.0)
            out.write_control(EndOfData())
            while not a.drained():
                a.pump(1.0)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    b = ends[B]
    seen, marks = 0, 0
    while True:
        polled = b.gate.poll()
        if polled is None:
            b.pump(5.0)
            continue
        _, element = polled
        if isinstance(element, EndOfData):
            break
        if isinstance(element, Watermark):
            assert element.timestamp == seen
            marks += 1
        else:
            assert isinstance(element, ColumnBatch)
            first = element.data.column(0)[0].as_py()
            assert first == seen
            seen += len(element)
    thread.join(10)
    assert not errors
    assert (seen, marks) == (count * rows, count)
    for end in ends.values():
        figures = end.statistics()
        assert figures.peak_in_flight_bytes <= figures.bound_bytes
        end.close()
