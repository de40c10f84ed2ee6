"""What every transport promises: each test runs in process, through the codec, unix and TCP."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from exchange_kit import batch, channel, marks_of, rows_of, settle, take_all, task, wire
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.elements import (
    MAX_TIMESTAMP,
    CheckpointBarrier,
    EndOfData,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from strom.core.errors import TransportError
from strom.core.ids import ChannelId, CheckpointId, OperatorId

A, B, C = task("a"), task("b"), task("c")
EAGER = ExchangeConfig(buffer_timeout=timedelta(0))
SMALL = ExchangeConfig(
    buffer_bytes=8 << 10,
    min_buffer_bytes=1 << 10,
    exclusive_buffers=2,
    floating_buffers=3,
    buffer_timeout=timedelta(0),
)


def pair(make: Any, config: ExchangeConfig = EAGER) -> tuple[Any, Any, Any]:
    """Sender, receiver and the channel between them."""
    a, b = make(A, config), make(B, config)
    wire(1, {A: a, B: b}, [channel(0, A, B, 0)])
    settle(a, b)
    return a, b, a.outputs[ChannelId(0)]


def validate(*endpoints: Any) -> None:
    for endpoint in endpoints:
        endpoint.gate.validate()
        for output in endpoint.outputs.values():
            output.validate()


def test_elements_arrive_in_the_order_written(make: Any) -> None:
    a, b, out = pair(make)
    barrier = CheckpointBarrier(CheckpointId(1), 5)
    out.write(batch(0, 3))
    out.write_control(Watermark(3))
    out.write(batch(3, 2))
    out.write_control(StreamStatus(False))
    out.write_control(barrier)
    out.write_control(EndOfData())
    settle(a, b)
    assert take_all(b) == [
        (0, [0, 1, 2]),
        (0, Watermark(3)),
        (0, [3, 4]),
        (0, StreamStatus(False)),
        (0, barrier),
        (0, EndOfData()),
    ]
    assert a.drained()
    validate(a, b)


def test_a_buffer_leaves_at_its_timeout_and_not_before(make: Any, clock: VirtualClock) -> None:
    a, b, out = pair(make, ExchangeConfig(buffer_timeout=timedelta(milliseconds=10)))
    assert a.next_flush() is None
    out.write(batch(0, 1))
    clock.advance_ms(4)
    out.write(batch(1, 1))
    assert a.next_flush() == pytest.approx(0.006, abs=1e-6)
    settle(a, b, rounds=5)
    assert take_all(b) == []
    assert not a.drained()
    clock.advance_ms(6)
    settle(a, b)
    assert take_all(b) == [(0, [0, 1])]  # coalesced
    assert a.next_flush() is None


def test_flush_sends_what_there_is(make: Any) -> None:
    a, b, out = pair(make, ExchangeConfig(buffer_timeout=timedelta(hours=1)))
    out.write(batch(0, 2))
    a.flush()
    settle(a, b)
    assert take_all(b) == [(0, [0, 1])]


def test_small_batches_are_coalesced_and_large_ones_cut(make: Any) -> None:
    a, b, out = pair(make, SMALL)
    for i in range(100):
        out.write(batch(i * 10, 10))
    out.write(batch(1000, 5000))
    got: list[Any] = []
    for _ in range(60):
        settle(a, b, rounds=3)
        got += take_all(b)
    sizes = [8 * len(v) for _, v in got]
    assert rows_of(got) == list(range(6000))
    assert max(sizes) <= SMALL.buffer_bytes
    assert len(sizes) < 12
    validate(a, b)


def test_backpressure_bounds_what_is_held_and_shows_at_the_sender(make: Any) -> None:
    a, b, out = pair(make, SMALL)
    written = 0
    for _ in range(400):  # the receiver never polls
        if out.available:
            out.write(batch(written, 256))
            written += 256
        a.pump(0)
        b.pump(0)
    assert not out.available
    assert a.next_flush() is None  # only a credit helps: no reason to spin
    held_a, held_b = a.statistics(), b.statistics()
    buffers = SMALL.exclusive_buffers + SMALL.floating_buffers
    slack = 1.2  # Arrow's metadata
    assert 0 < held_b.in_flight_bytes <= buffers * SMALL.buffer_bytes * slack
    assert held_a.in_flight_bytes <= SMALL.buffer_bytes + 256 * 8
    assert 8 * written <= (buffers + 1) * SMALL.buffer_bytes + 256 * 8
    assert held_a.peak_in_flight_bytes <= held_a.bound_bytes
    assert held_b.peak_in_flight_bytes <= held_b.bound_bytes
    got = []
    for _ in range(40):
        got += take_all(b)
        settle(a, b, rounds=3)
    assert rows_of(got) == list(range(written))
    assert out.available
    assert b.statistics().in_flight_bytes == 0
    assert a.statistics().in_flight_bytes == 0
    validate(a, b)


def test_a_blocked_channel_waits_and_the_others_go_on(make: Any) -> None:
    a, b, c = make(A, SMALL), make(B, SMALL), make(C, SMALL)
    wire(1, {A: a, B: b, C: c}, [channel(0, A, C, 0), channel(1, B, C, 1)])
    settle(a, b, c)
    c.gate.block(0)
    slow, fast = a.outputs[ChannelId(0)], b.outputs[ChannelId(1)]
    slow.write(batch(0, 20_000))
    fast.write(batch(0, 20_000))
    got = []
    for _ in range(80):
        settle(a, b, c, rounds=2)
        got += take_all(c)
    assert {index for index, _ in got} == {1}
    assert rows_of(got, 1) == list(range(20_000))
    assert not slow.available
    c.gate.unblock_all()
    for _ in range(80):
        settle(a, b, c, rounds=2)
        got += take_all(c)
    assert rows_of(got, 0) == list(range(20_000))
    validate(a, b, c)


def test_polling_is_fair(make: Any) -> None:
    a, b, c = make(A, EAGER), make(B, EAGER), make(C, EAGER)
    wire(1, {A: a, B: b, C: c}, [channel(0, A, C, 0), channel(1, B, C, 1)])
    settle(a, b, c)
    for i in range(4):
        a.outputs[ChannelId(0)].write_control(Watermark(i))
        b.outputs[ChannelId(1)].write_control(Watermark(i))
    settle(a, b, c)
    order = [index for index, _ in take_all(c)]
    assert order in ([0, 1] * 4, [1, 0] * 4)


@pytest.mark.parametrize("seed", range(3))
def test_random_traffic_keeps_its_order_per_channel(make: Any, seed: int) -> None:
    """Two senders, two receivers, one pair with two channels; random writes, polls, blocks."""
    draw = random.Random(seed)
    d = task("d")
    ends = {t: make(t, SMALL) for t in (A, B, C, d)}
    links = [(A, C), (A, C), (A, d), (B, C), (B, d)]
    seen: dict[Any, int] = {}
    channels = []
    for i, (source, target) in enumerate(links):
        channels.append(channel(i, source, target, seen.get(target, 0)))
        seen[target] = seen.get(target, 0) + 1
    wire(1, ends, channels)
    written = dict.fromkeys(range(len(links)), 0)
    got: dict[Any, list[Any]] = {C: [], d: []}

    def receive(most: int) -> None:
        for name, log in got.items():
            for _ in range(most):
                if (polled := ends[name].gate.poll()) is None:
                    break
                index, element = polled
                value = element.data.column(0).to_pylist() if hasattr(element, "data") else element
                log.append((index, value))

    for _ in range(150):
        number = draw.randrange(len(links))
        out = ends[links[number][0]].outputs[ChannelId(number)]
        if out.available:
            rows = draw.choice([1, 40, 900, 3000])
            out.write(batch(written[number], rows))
            written[number] += rows
            if draw.random() < 0.3:
                out.write_control(Watermark(written[number]))
        if draw.random() < 0.1:
            ends[C].gate.block(draw.randrange(3))
        elif draw.random() < 0.1:
            ends[C].gate.unblock_all()
        receive(draw.randrange(3))
        ends[draw.choice([A, B, C, d])].pump(0)
        validate(*ends.values())
    ends[C].gate.unblock_all()
    for _ in range(300):
        settle(*ends.values(), rounds=5)
        receive(100)
        if all(end.drained() for end in ends.values()):
            settle(*ends.values())
            receive(100)
            break
    for c in channels:
        log = got[c.target]
        assert rows_of(log, c.target_index) == list(range(written[c.id]))
        marks_of(log, c.target_index)
    assert all(end.drained() for end in ends.values())
    for end in ends.values():
        figures = end.statistics()
        assert figures.in_flight_bytes == 0
        assert figures.peak_in_flight_bytes <= figures.bound_bytes
    validate(*ends.values())


def test_objects_travel_and_a_large_pickle_is_cut(make: Any) -> None:
    a, b, out = pair(make, ExchangeConfig(buffer_bytes=64 << 10, buffer_timeout=timedelta(0)))
    values = ["x" * 2000 + str(i) for i in range(500)]  # 1 MB, estimated as 32 KB
    out.write(ObjectBatch(values))
    got: list[str] = []
    for _ in range(60):
        settle(a, b, rounds=2)
        while (polled := b.gate.poll()) is not None:
            assert isinstance(polled[1], ObjectBatch)
            got += polled[1].values
    assert got == values
    validate(a, b)


def test_a_new_attempt_starts_clean(make: Any) -> None:
    a, b, out = pair(make)
    out.write(batch(0, 5))
    settle(a, b)
    assert b.statistics().in_flight_bytes > 0
    ends = {A: a, B: b}
    wire(2, ends, [channel(0, A, B, 0)])
    assert b.statistics().in_flight_bytes == 0
    settle(a, b)
    a.outputs[ChannelId(0)].write(batch(100, 2))
    settle(a, b)
    assert take_all(b) == [(0, [100, 101])]


def test_a_sender_wired_first_waits_for_its_receiver(make: Any) -> None:
    from strom.engine.exchange.endpoint import Wiring

    a, b = make(A, EAGER), make(B, EAGER)
    link = channel(0, A, B, 0)
    a.connect(Wiring(3, [], [link], {B: b.address}))
    a.outputs[link.id].write(batch(0, 2))
    settle(a, b, rounds=10)
    assert not a.drained()
    b.connect(Wiring(3, [link], [], {}))
    settle(a, b)
    assert take_all(b) == [(0, [0, 1])]


def test_a_sender_of_a_former_attempt_is_refused(make: Any) -> None:
    from strom.engine.exchange.endpoint import Wiring

    a, b = make(A, EAGER), make(B, EAGER)
    link = channel(0, A, B, 0)
    b.connect(Wiring(5, [link], [], {}))
    a.connect(Wiring(4, [], [link], {B: b.address}))
    a.outputs[link.id].write_control(Watermark(1))
    with pytest.raises(TransportError, match=r"b\[0\].*attempt"):
        settle(a, b)
    assert take_all(b) == []


def test_a_peer_that_goes_away_early_is_named(make: Any) -> None:
    a, b, out = pair(make)
    out.write(batch(0, 1))
    settle(a, b)
    a.close()
    with pytest.raises(TransportError, match=r"a\[0\]"):
        settle(b)
    c, d = make(A, EAGER), make(B, EAGER)
    wire(1, {A: c, B: d}, [channel(0, A, B, 0)])
    settle(c, d)
    d.close()
    with pytest.raises(TransportError, match=r"b\[0\]"):
        settle(c)


@pytest.mark.parametrize("sender_first", [True, False])
def test_closing_after_the_end_of_data_disturbs_nobody(make: Any, sender_first: bool) -> None:
    a, b, out = pair(make)
    out.write(batch(0, 50))
    out.write_control(EndOfData())
    settle(a, b)
    first, second = (a, b) if sender_first else (b, a)
    first.close()
    first.close()
    settle(second)
    if sender_first:
        assert take_all(b) == [(0, list(range(50))), (0, EndOfData())]
        settle(b)
    assert second.drained()


def test_views_travel_and_count_only_their_own_bytes(make: Any) -> None:
    long = [None if i % 7 == 0 else f"a string too long to be inlined {i}" for i in range(9000)]
    whole = ColumnBatch(pa.record_batch({"s": pa.array(long, pa.string_view())}))
    a, b, out = pair(make, SMALL)
    out.write(whole.slice(8000, 90))  # its own bytes fit one buffer, its parent's would not
    settle(a, b)
    (_, element), rest = b.gate.poll(), b.gate.poll()
    assert element.data.column(0).to_pylist() == long[8000:8090]
    assert rest is None
    assert a.statistics().bytes_sent < SMALL.buffer_bytes


def test_a_barrier_is_taken_before_what_says_nothing_of_records(make: Any) -> None:
    """For a task whose outputs are full. Records and watermarks are never overtaken."""
    a, b, out = pair(make)
    barriers = [CheckpointBarrier(CheckpointId(n), 5) for n in (1, 2, 3)]
    terminal = CheckpointBarrier(CheckpointId(4), 5, True)
    out.write(batch(0, 3))
    out.write_control(barriers[0])
    out.write_control(Watermark(3))
    out.write_control(barriers[1])
    out.write_control(StreamStatus(False))
    out.write_control(LatencyMarker(OperatorId("s"), 0, 1))
    out.write_control(Watermark(MAX_TIMESTAMP))
    out.write_control(EndOfData())
    out.write_control(barriers[2])
    out.write_control(terminal)
    settle(a, b)
    assert b.gate.poll_barrier() is None, "records are before it"
    assert b.gate.poll() is not None
    b.gate.block(0)
    assert b.gate.poll_barrier() is None, "the channel is blocked"
    b.gate.unblock_all()
    assert b.gate.poll_barrier() == (0, barriers[0])
    assert b.gate.poll_barrier() is None, "a watermark is before it"
    validate(b)
    assert b.gate.poll() == (0, Watermark(3))
    assert b.gate.poll_barrier() == (0, barriers[1])
    assert b.gate.poll_barrier() == (0, barriers[2])
    assert b.gate.poll_barrier() is None
    validate(b)
    assert take_all(b) == [
        (0, StreamStatus(False)),
        (0, LatencyMarker(OperatorId("s"), 0, 1)),
        (0, Watermark(MAX_TIMESTAMP)),
        (0, EndOfData()),
        (0, terminal),
    ]


def test_the_bound_counts_all_that_is_written_in_one_go(make: Any) -> None:
    """Ten batches without a look at `available` are one large write."""
    a, b, out = pair(make, SMALL)
    for start in range(10):
        out.write(batch(1000 * start, 1000))
    held = a.statistics()
    assert held.peak_in_flight_bytes <= held.bound_bytes
    assert held.bound_bytes >= 80_000
    settle(a, b)
    while take_all(b):
        settle(a, b)
    assert out.available
    small = out.largest_write
    out.write(batch(0, 10))
    assert out.largest_write == small, "the most so far"
