"""State with a time to live: what it costs, and that memory is flat while keys come for ever.

A harness holds one operator, whose keys are new all the time: each comes in four records of one
batch and, half of them, in one of the next batch. The clock goes on by 10 ms a batch; keys live for
an eighth of the whole. The same is run with and without time to live, in turns, each time in a
process of its own.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from strom import (
    ColumnBatch,
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    RuntimeContext,
    StateTtlConfig,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource
from strom.testing import OperatorHarness

from .apart import Broken, apart
from .configured import backend, job_config
from .streams import KEY_VALUE, key_values, mix, numbers

BLOCK = 16_384
BATCH_MS = 10
SAMPLES = 8
"""How often a run is looked at; its time to live is as long as one of these parts."""

PER_KEY = 4


class Totals(KeyedProcessFunction):
    """One value state, one result per record."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms = ttl_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("total")
        if self.ttl_ms is not None:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(self.ttl_ms).build())
        self.total = runtime_context.get_state(descriptor)

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value.v
        self.total.update(total)
        yield value.k, total


def by_event(ttl: int | None) -> StateTtlConfig | None:
    return None if ttl is None else StateTtlConfig.new_builder(ttl).use_event_time().build()


CASES: dict[str, Callable[[KeyedStream, int | None], DataStream]] = {
    "value_state": lambda keyed, ttl: keyed.process(Totals(ttl)),
    "aggregate": lambda keyed, ttl: keyed.aggregate(n=count(), total=sum_("v"), ttl=ttl),
    "deduplicate_first": lambda keyed, ttl: keyed.deduplicate(ttl=ttl),
    "deduplicate_last": lambda keyed, ttl: keyed.deduplicate("last", ttl=ttl),
    "top_n": lambda keyed, ttl: keyed.top_n(2, ("v", "desc"), ttl=ttl),
    "sum": lambda keyed, ttl: keyed.sum("v", ttl=ttl),
    "event_aggregate": lambda keyed, ttl: keyed.aggregate(
        n=count(), total=sum_("v"), ttl=by_event(ttl)
    ),
    "event_top_n": lambda keyed, ttl: keyed.top_n(2, ("v", "desc"), ttl=by_event(ttl)),
    "event_join": lambda keyed, ttl: keyed.join(keyed, ttl=by_event(ttl)),
}
"""By name: a keyed stream of KEY_VALUE and a time to live in ms. Those of event time go by the
watermark, which is as far as the clock; of the join only the left side gets records."""


def records(batch: int, stamped: bool) -> ColumnBatch:
    """The records of batch `batch`, with event times or without: the keys of its own, and those of
    the batch before."""
    own = BLOCK // (PER_KEY + 1) * PER_KEY
    drawn = mix(numbers(batch * BLOCK, BLOCK))
    keys = np.empty(BLOCK, dtype=np.int64)
    keys[:own] = batch * (own // PER_KEY) + np.arange(own) // PER_KEY
    former = max(batch - 1, 0) * (own // PER_KEY)
    keys[own:] = former + (drawn[own:] % np.uint64(own // PER_KEY // 2)).astype(np.int64)
    values = (drawn >> np.uint64(40)).astype(np.int64) % 100
    data = pa.record_batch([pa.array(keys), pa.array(values)], schema=KEY_VALUE)
    return ColumnBatch(data, np.full(BLOCK, batch * BATCH_MS) if stamped else None)


def run(case: str, events: int, with_ttl: bool) -> dict[str, Any]:
    """One run, in this process: records per second, and how it stood after each part."""
    part = max(1, events // BLOCK // SAMPLES)
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGenSource(key_values, BLOCK, schema=KEY_VALUE)
    keyed = env.from_source(source, source_name="pairs").key_by("k")
    stream = CASES[case](keyed, part * BATCH_MS if with_ttl else None)
    harness = OperatorHarness.of(stream, config=job_config())
    spent, slowest, keys, rss = 0.0, 0.0, [], []
    for number in range(part * SAMPLES):
        batch = records(number, case.startswith("event_"))
        start = time.perf_counter()
        harness.push(batch)
        harness.watermark(number * BATCH_MS)
        harness.advance_processing_time(harness.clock.now_ms() + BATCH_MS)
        took = time.perf_counter() - start
        spent, slowest = spent + took, max(slowest, took)
        harness.output.elements.clear()
        if (number + 1) % part == 0:
            rss.append(resident_mb())
            if with_ttl:
                held = [table.data.num_rows for table in harness.snapshot().keyed]
                keys.append(max(held, default=0))
    return {
        "records_per_s": round(part * SAMPLES * BLOCK / spent),
        "slowest_batch_ms": round(slowest * 1e3, 1),
        "keys": keys,
        "rss_mb": rss,
    }


def resident_mb() -> int:
    """Of this process, now."""
    with open("/proc/self/statm", encoding="ascii") as figures:
        return int(figures.read().split()[1]) * resource.getpagesize() >> 20


def measure(names: list[str], events: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A line for each case; one that broke says how."""
    for name in names:
        line: dict[str, Any] = {"name": "ttl", "case": name, "backend": backend()}
        line |= {"events": events, "rounds": rounds}
        try:
            taken = [[in_a_process(name, events, w) for w in (False, True)] for _ in range(rounds)]
        except Broken as error:
            yield {**line, "error": str(error)}
        else:
            yield {**line, **summary([pair[0] for pair in taken], [pair[1] for pair in taken])}


def summary(without: list[dict[str, Any]], with_ttl: list[dict[str, Any]]) -> dict[str, Any]:
    """Median rates, and how the last runs stood."""
    rates = [statistics.median(r["records_per_s"] for r in runs) for runs in (with_ttl, without)]
    half = SAMPLES // 2
    last = with_ttl[-1]
    return {
        "records_per_s": round(rates[0]),
        "records_per_s_without": round(rates[1]),
        "ratio": round(rates[0] / rates[1], 3),
        "slowest_batch_ms": last["slowest_batch_ms"],
        "slowest_batch_ms_without": without[-1]["slowest_batch_ms"],
        "keys": last["keys"],
        "rss_mb": last["rss_mb"],
        "rss_mb_without": without[-1]["rss_mb"],
        "flat": last["keys"][-1] <= max(last["keys"][:half]) * 1.1
        and last["rss_mb"][-1] <= last["rss_mb"][half - 1] * 1.1,
    }


def in_a_process(case: str, events: int, with_ttl: bool) -> dict[str, Any]:
    """`run` in a process of its own; Broken if it broke."""
    found: dict[str, Any] = apart(run_warm, case, events, with_ttl)
    return found


def run_warm(case: str, events: int, with_ttl: bool) -> dict[str, Any]:
    """`run`, once what is loaded late is there."""
    run(case, BLOCK * SAMPLES, with_ttl)
    return run(case, events, with_ttl)
