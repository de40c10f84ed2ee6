"""Frames of keys that are forgotten after a time to live, against a plain model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import event_streams
import numpy as np
import pyarrow as pa
import pytest
from strom import ColumnBatch, StateTtlConfig, StreamExecutionEnvironment, count, max_, sum_
from strom.core.errors import ConfigurationError, StateError
from strom.testing import OperatorHarness
from strom.testing.backends import job_of

TTL = 20
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
FRAMES: dict[str, dict[str, Any]] = {"all": {}, "rows": {"rows": 3}}
BY_EVENT = StateTtlConfig.new_builder(TTL).use_event_time().build()

Record = tuple[int, int]


def over(ttl: Any, **settings: Any) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([{"k": 1, "v": 1}]).key_by("k")
    return keyed.over(ttl=ttl, **settings).aggregate(n=count(), s=sum_("v"), m=max_("v"))


def batch(records: list[Record], stamps: list[int] | None = None) -> ColumnBatch:
    rows = [dict(zip(SCHEMA.names, record, strict=True)) for record in records]
    times = None if stamps is None else np.array(stamps, np.int64)
    return ColumnBatch(pa.RecordBatch.from_pylist(rows, SCHEMA), times)


def expected(records: list[Record], times: list[int], frame: str) -> list[Any]:
    held: dict[int, list[int]] = {}
    latest: dict[int, int] = {}
    rows = []
    for (key, value), time in zip(records, times, strict=True):
        if key in latest and latest[key] + TTL <= time:
            del held[key], latest[key]
        values = held.setdefault(key, [])
        values.append(value)
        latest[key] = max(time, latest.get(key, time))
        seen = values[-3:] if frame == "rows" else values
        rows.append((key, value, len(seen), sum(seen), max(seen)))
    return rows


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_by_event_time(frame: str, order: Any) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        stamps = event_streams.times(rng, 80, TTL)
        records = [(rng.randrange(3), rng.randrange(9)) for _ in stamps]
        stream = over(BY_EVENT, order=order, **FRAMES[frame])
        harness, found = OperatorHarness.of(stream, config=job_of(seed)), []
        for what, value in event_streams.steps(rng, stamps):
            if what == "rows":
                harness.push(batch(records[value], stamps[value]))
            elif what == "watermark":
                harness.watermark(value)
            else:
                found += harness.take_outputs()
                harness = OperatorHarness.of(
                    stream, restored=harness.snapshot(), config=job_of(seed)
                )
        harness.finish()
        found += harness.take_outputs()
        if order == "event_time":
            places = sorted(range(len(stamps)), key=lambda at: stamps[at])
            records, stamps = [records[at] for at in places], sorted(stamps)
        assert Counter(map(tuple, found)) == Counter(expected(records, stamps, frame)), seed


@pytest.mark.parametrize("frame", FRAMES)
def test_by_processing_time(frame: str) -> None:
    stream = over(TTL, order="arrival", **FRAMES[frame])
    for seed in range(10):
        rng, harness, now = random.Random(seed), OperatorHarness.of(stream, config=job_of(seed)), 0
        records: list[Record] = []
        times: list[int] = []
        found: list[Any] = []
        for _ in range(30):
            some = [(rng.randrange(3), rng.randrange(9)) for _ in range(rng.randint(1, 4))]
            records += some
            times += [now] * len(some)
            harness.push(batch(some))
            found += harness.take_outputs()
            now += rng.choice([0, 3, TTL - 1, TTL])
            harness.advance_processing_time(now)
            if rng.random() < 0.2:
                harness = OperatorHarness.of(
                    stream, restored=harness.snapshot(), config=job_of(seed)
                )
        assert [tuple(row) for row in found] == expected(records, times, frame), seed


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("ttl", [TTL, BY_EVENT], ids=["clock", "events"])
def test_what_is_held_does_not_grow(frame: str, ttl: Any) -> None:
    harness, held = OperatorHarness.of(over(ttl, order="arrival", **FRAMES[frame])), []
    for number in range(40):
        keys = range(number * 1000, number * 1000 + 1000)
        harness.push(batch([(key, 1) for key in keys], [2 * number] * 1000))
        harness.watermark(2 * number)
        harness.advance_processing_time(2 * number)
        harness.output.elements.clear()
        held.append(max(table.data.num_rows for table in harness.snapshot().keyed))
    assert max(held) <= 16_000
    history = harness.operator._history  # type: ignore[attr-defined]
    slots = len(history._index) if frame == "rows" else len(history._state.table(0))
    assert slots <= 30_000


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("before", [None, TTL])
def test_what_was_stored_otherwise_is_refused(frame: str, before: Any) -> None:
    old = OperatorHarness.of(over(before, order="arrival", **FRAMES[frame]))
    old.push(batch([(1, 1)], [0]))
    stream = over(BY_EVENT, order="arrival", **FRAMES[frame])
    with pytest.raises(StateError, match="or give the operator a new uid"):
        OperatorHarness.of(stream, restored=old.snapshot())


def test_a_range_needs_none() -> None:
    with pytest.raises(ConfigurationError, match="leave out ttl"):
        over(TTL, range=5)
