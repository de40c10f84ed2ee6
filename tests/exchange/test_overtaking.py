"""A barrier that overtakes, on every transport: what it passes at both ends is kept, once and in
order, and everything arrives all the same."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from exchange_kit import batch, channel, rows_of, settle, take_all, task, wire
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.config import ExchangeConfig
from strom.core.elements import (
    MAX_TIMESTAMP,
    CheckpointBarrier,
    EndOfData,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from strom.core.ids import ChannelId, CheckpointId, OperatorId
from strom.engine.task.in_flight import element_of, item_of

A, B = task("a"), task("b")
TIGHT = ExchangeConfig(
    buffer_bytes=1 << 10,
    min_buffer_bytes=64,
    exclusive_buffers=1,
    floating_buffers=1,
    buffer_timeout=timedelta(0),
)


def barrier(n: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(n), 5, overtakes=True)


def pair(make: Any, config: ExchangeConfig = TIGHT) -> tuple[Any, Any, Any]:
    a, b = make(A, config), make(B, config)
    wire(1, {A: a, B: b}, [channel(0, A, B, 0)])
    settle(a, b)
    return a, b, a.outputs[ChannelId(0)]


def plain(elements: Any) -> list[Any]:
    """Records one by one, and control elements."""
    found: list[Any] = []
    for element in elements:
        match element:
            case ColumnBatch():
                found += element.data.column(0).to_pylist()
            case ObjectBatch():
                found += element.values
            case _:
                found.append(element)
    return found


def recorded(gate: Any) -> list[Any]:
    items, _ = gate.end_recording()
    return plain(element_of(item_of(kept())) for kept in items[0])


def polled(gate: Any) -> list[Any]:
    found = []
    while (item := gate.poll()) is not None:
        found.append(item[1])
    return plain(found)


@pytest.mark.parametrize("objects", [False, True])
def test_what_it_passes_is_kept_at_both_ends_and_still_arrives(make: Any, objects: bool) -> None:
    a, b, out = pair(make)
    numbers = list(range(2000))
    for at in numbers[::50]:
        part = numbers[at : at + 50]
        out.write(ObjectBatch(part) if objects else batch(at, 50))
    settle(a, b)
    assert not out.available, "what was written waits at the sender, too"
    unsent = plain(out.overtake(barrier(1)))
    assert b.gate.poll_announced() is None
    settle(a, b)
    announced = b.gate.poll_announced()
    assert announced == (0, barrier(1))
    assert announced[1].passed
    b.gate.record(CheckpointId(1), [0])
    assert b.gate.poll_recorded() == 0
    sent = recorded(b.gate)
    assert sent
    assert unsent
    assert sent + unsent == numbers
    got: list[Any] = []
    while len(got) < len(numbers):
        got += polled(b.gate)
        settle(a, b)
        b.gate.validate()
        out.validate()
    assert got == numbers, "the barrier is gone, and nothing else"


def test_what_comes_after_the_snapshot_and_before_the_barrier_is_recorded(make: Any) -> None:
    a, b, out = pair(make, ExchangeConfig(buffer_timeout=timedelta(0)))
    out.write(batch(0, 3))
    settle(a, b)
    b.gate.record(CheckpointId(1), [0])
    assert polled(b.gate) == [0, 1, 2], "it is read on meanwhile"
    out.write(batch(3, 2))
    out.write_control(Watermark(9))
    settle(a, b)
    assert polled(b.gate) == [3, 4, Watermark(9)]
    assert b.gate.poll_recorded() is None
    out.write_control(barrier(1))
    out.write(batch(5, 1))
    settle(a, b)
    assert b.gate.poll_recorded() == 0
    assert b.gate.poll_recorded() is None
    assert recorded(b.gate) == [0, 1, 2, 3, 4, Watermark(9)]
    assert polled(b.gate) == [5]
    assert b.gate.poll_announced() is None, "nobody is told of a barrier that was waited for"


def test_only_event_time_and_activity_are_kept_beside_records(make: Any) -> None:
    a, b, out = pair(make)
    out.write_control(barrier(1))  # given up long ago
    out.write_control(StreamStatus(False))
    out.write_control(LatencyMarker(OperatorId("s"), 0, 1))
    out.write_control(Watermark(7))
    out.write(batch(0, 1))
    out.write_control(Watermark(MAX_TIMESTAMP))
    out.write_control(EndOfData())
    assert plain(out.overtake(barrier(2))) == [StreamStatus(False), Watermark(7), 0]
    settle(a, b)
    b.gate.record(CheckpointId(2), [0])
    assert recorded(b.gate) == []
    assert take_all(b) == [
        (0, barrier(1)),
        (0, StreamStatus(False)),
        (0, LatencyMarker(OperatorId("s"), 0, 1)),
        (0, Watermark(7)),
        (0, [0]),
        (0, Watermark(MAX_TIMESTAMP)),
        (0, EndOfData()),
    ]


def test_a_barrier_that_waits_in_its_turn_is_put_ahead_once(make: Any) -> None:
    a, b, out = pair(make)
    for at in range(0, 1000, 100):
        out.write(batch(at, 100))
    settle(a, b)
    out.write_control(barrier(1))
    out.write(batch(1000, 100))
    assert out.holds(CheckpointId(1))
    unsent = plain(out.overtake(barrier(1)))
    assert unsent[-1] == 999, "what is behind it is none of it"
    settle(a, b)
    assert not out.holds(CheckpointId(1))
    b.gate.record(CheckpointId(1), [0])
    assert recorded(b.gate) + unsent == list(range(1000))
    got: list[Any] = []
    while len(got) < 1100:
        got += polled(b.gate)
        settle(a, b)
    assert got == list(range(1100))
    out.validate()


def test_a_barrier_in_its_turn_has_passed_nothing(make: Any) -> None:
    a, b, out = pair(make)
    assert out.overtake(barrier(1)) == []
    settle(a, b)
    _, announced = b.gate.poll_announced()
    assert not announced.passed
    assert take_all(b) == [(0, barrier(1))]


def test_recording_ends_when_it_is_given_up(make: Any) -> None:
    a, b, out = pair(make)
    b.gate.record(CheckpointId(1), [0])
    b.gate.end_recording()
    out.write_control(barrier(1))
    settle(a, b)
    assert b.gate.poll_recorded() is None
    assert b.gate.end_recording() == ({}, False)
    assert take_all(b) == [(0, barrier(1))]


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_writes_barriers_and_reads(make: Any, seed: int) -> None:
    """At each checkpoint what was read, recorded and kept at the sender is what was written before
    it; in the end everything was read once and in order."""
    rng = random.Random(seed)
    a, b, out = pair(make)
    written = got = 0
    number = 0
    read: list[Any] = []
    for _ in range(120):
        match rng.randrange(6):
            case 0 | 1 | 2:
                rows = rng.randint(1, 300)
                out.write(batch(written, rows))
                written += rows
            case 3:
                settle(a, b, rounds=rng.randint(1, 2))
            case 4 if (item := b.gate.poll()) is not None:
                read += plain([item[1]])
            case 5 if rng.random() < 0.4:
                number += 1
                late = rng.random() < 0.5
                if late:
                    out.write_control(barrier(number))
                before = written
                if late and rng.random() < 0.5:
                    out.write(batch(written, 10))
                    written += 10
                unsent = plain(out.overtake(barrier(number)))
                if rng.random() < 0.5:
                    settle(a, b)
                b.gate.record(CheckpointId(number), [0])
                got = len(read)
                while b.gate.poll_recorded() is None:
                    read += plain([item[1]]) if (item := b.gate.poll()) else []
                    settle(a, b, rounds=1)
                kept = recorded(b.gate) + unsent
                assert list(range(got)) + kept == list(range(before)), f"checkpoint {number}"
        b.gate.validate()
        out.validate()
    a.flush()
    while len(read) < written:
        read += polled(b.gate)
        settle(a, b)
    assert read == list(range(written))
    assert rows_of([]) == []
