"""Asynchronous operators run every way: whole, with crashes, rescaled."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import nullcontext
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    ProcessWindowFunction,
    TumblingEventTimeWindows,
)
from strom.testing.equivalence import Ways, checkpointed, run_crashing
from strom.testing.probes import CollectProbe

RETRY = AsyncRetryStrategy.fixed_delay(3, 2, lambda results: results == ["again"], None)
WAITS = ("ordered", "unordered")


class Enrich(AsyncFunction[Any, Any]):
    """Takes some ms, mostly few; gives none, one or two results; is asked again now and then."""

    def __init__(self) -> None:
        self.seen: Counter[Any] = Counter()

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0.001 * (value.v % 5 + 20 * (value.v % 11 == 0)))
        self.seen[value] += 1
        if value.v % 7 == 0 and self.seen[value] == 1:
            return ["again"]
        return [(value.k, value.v, value.ts)] * (value.v % 3)

    def timeout(self, value: Any) -> list[Any]:
        return [("late", value.v, value.ts)]


class Slow(AsyncFunction[Any, Any]):
    """Of some records the time is over: they never end."""

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(3600 if value.v % 10 == 0 else 0)
        return [("ok", value.v)]

    def timeout(self, value: Any) -> list[Any]:
        return [("late", value.v)]


def wait(order: str, stream: Any, *args: Any) -> Any:
    return getattr(AsyncDataStream, f"{order}_wait_with_retry")(stream, *args)


def expected(readings: Any) -> list[Any]:
    return [(r.k, r.v, r.ts) for r in readings.all for _ in range(r.v % 3)]


@pytest.mark.parametrize(("order", "kind"), pairs(WAITS, ["rows", "columns"]))
def test_records_are_asked_and_answered_once(readings: Any, kind: str, order: str) -> None:
    def program(env: Any) -> Any:
        return wait(order, readings.stream(env, kind), Enrich(), 60_000, RETRY, 3)

    assert_equivalent(program, expected(readings))


@pytest.mark.parametrize("order", WAITS)
def test_behind_an_exchange_and_ahead_of_another(readings: Any, order: str) -> None:
    def program(env: Any) -> Any:
        keyed = readings.stream(env, "rows").key_by(lambda r: r.k)
        return wait(order, keyed, Enrich(), 60_000, RETRY, 2).rebalance().map(lambda r: r)

    assert_equivalent(program, expected(readings))


@pytest.mark.parametrize("order", WAITS)
def test_timeouts_give_their_results(readings: Any, order: str) -> None:
    def program(env: Any) -> Any:
        stream = readings.stream(env, "rows")
        return getattr(AsyncDataStream, f"{order}_wait")(stream, Slow(), 30, 4)

    want = [("late" if r.v % 10 == 0 else "ok", r.v) for r in readings.all]
    assert_equivalent(program, want, Ways(local=False))


class Listed(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, sorted(e[1] for e in elements)


@pytest.mark.parametrize("order", WAITS)
def test_no_record_is_late_behind_its_watermark(readings: Any, order: str) -> None:
    """Windows get the times and watermarks that they would have got without the requests."""

    async def unchanged(value: Any) -> list[Any]:
        await asyncio.sleep(0.001 * (value.v % 7))
        return [(value.k, value.v)]

    def windows(stream: Any) -> Any:
        return (
            stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(10)).process(Listed())
        )

    def program(env: Any) -> Any:
        stream = readings.stream(env, "rows")
        return windows(getattr(AsyncDataStream, f"{order}_wait")(stream, unchanged, 0, 3))

    def plain(env: Any) -> Any:
        return windows(readings.stream(env, "rows").map(lambda r: (r.k, r.v)))

    assert_equivalent(program, assert_equivalent(plain, None, Ways(seeds=())))


class Double:
    """A model that is asked for a batch at a time."""

    async def open(self, runtime_context: Any) -> None:
        await asyncio.sleep(0)
        self.factor = 2

    async def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        await asyncio.sleep(0.001 * (batch["v"].sum() % 7))
        return batch.filter(pl.col("v") % 3 != 0).with_columns(pl.col("v") * self.factor)


@pytest.mark.parametrize(("ordered", "kind"), pairs([True, False], ["rows", "columns"]))
def test_batches(readings: Any, kind: str, ordered: bool) -> None:
    def program(env: Any) -> Any:
        stream = readings.stream(env, kind)
        asked = stream.async_map_batches(Double, "polars", capacity=2, ordered=ordered)
        return asked.map(lambda r: (r.k, r.v))

    assert_equivalent(program, [(r.k, 2 * r.v) for r in readings.all if r.v % 3])


def test_batches_of_other_lengths_and_formats(readings: Any) -> None:
    async def twice(batch: pa.RecordBatch) -> pa.Table:
        await asyncio.sleep(0.002)
        return pa.Table.from_batches([batch, batch])

    async def values(batch: Any) -> list[Any]:
        return [int(v) for v in batch["v"]]

    def program(env: Any) -> Any:
        stream = readings.stream(env, "columns")
        return {
            "twice": stream.async_map_batches(twice, timeout=60_000).map(lambda r: r.v),
            "numpy": stream.async_map_batches(values, "numpy"),
            "pandas": stream.async_map_batches(values, "pandas"),
        }

    each = [r.v for r in readings.all]
    want = [("twice", v) for v in each for _ in range(2)]
    want += [(name, v) for name in ("numpy", "pandas") for v in each]
    assert_equivalent(program, want, Ways(seeds=range(2)))


class Rising:
    """Fails if a record of a lane comes before an earlier one."""

    def __init__(self, rows: list[Any]) -> None:
        self.places = {row: place for place, row in enumerate(rows)}
        self.last: dict[str, int] = {}

    def __call__(self, value: Any) -> Any:
        lane, place = value.k[:2], self.places[value]
        assert place > self.last.get(lane, -1), f"{value} is out of order"
        self.last[lane] = place
        return value


def test_order_is_kept_per_subtask(readings: Any) -> None:
    """A lane's records come out as they went in, also after crashes, and though one subtask has
    more in flight than the other."""

    async def slow(value: Any) -> list[Any]:
        await asyncio.sleep(0.001 * (value.v % 6) if value.k < "k1" else 0)
        return [value]

    def program(env: Any) -> Any:
        asked = AsyncDataStream.ordered_wait(readings.stream(env, "rows"), slow, 0, 40)
        together = asked.map(lambda r: r).global_()
        return together.map(Rising(readings.all)).set_parallelism(1)

    ways = Ways(batch_size=5, crashes=3)
    midway = 0
    for seed in range(8):
        probe = CollectProbe(program)
        rows, crashed = run_crashing(
            lambda p=probe: nullcontext(p), checkpointed(ways, 2), ways, seed
        )
        assert sorted(rows) == sorted(readings.all)
        midway += crashed
    assert midway
