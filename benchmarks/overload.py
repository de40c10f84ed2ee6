"""More load than the job can take, then less: memory stays bounded, and latency comes back.

offered   ____|^^^^^^^|_______________      RATE, twice the capacity, RATE
latency   ____/‾‾‾‾‾‾‾‾‾‾‾‾\\__________      ages count from when a record was due
                      |<-->|                recovery: the backlog of records due is worked off
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from strom.connectors.datagen import DataGenSource

from ..core.arrays import Int64s
from .delays import joined, percentiles, run
from .latency import delayed_environment, stamp, through_keyed_stage
from .measure import processes_of
from .stepped import Step, SteppedSource
from .streams import KEY_VALUE, key_values

CAPACITY_EVENTS = 12_000_000
OVERLOAD = 2.0
SLACK = 2.0
"""How much longer than it should take the backlog is given to be worked off."""

SAMPLE = 16
"""One record in so many is measured: at full speed the ages of all would be most of the memory."""

BIN_NS = 100_000_000
CALM_FACTOR = 2.0
CALM_MS = 20.0
CALM_BINS = 5
"""Latency is back when the 99th percentiles of this many bins in a row are calm: within CALM_FACTOR
times what they were before the overload, or within CALM_MS."""


def measure_overload(
    rate: int, seconds: float, parallelism: int, host: str, buffer_timeout: int | None = None
) -> dict[str, Any]:
    """One line. A third of `seconds` each before, under and after the overload; the last third is
    prolonged by what working off the backlog should take."""
    capacity = capacity_of(parallelism, host, buffer_timeout)
    third = seconds / 3
    high = max(capacity * OVERLOAD, rate)
    drain = SLACK * (high - capacity) * third / max(capacity - rate, capacity / 10)
    steps = [Step(rate, third), Step(high, third), Step(rate, third + drain)]
    env = delayed_environment("overload", 0, parallelism, host, buffer_timeout)
    through_keyed_stage(env.from_source(SteppedSource(steps), source_name="stepped"), SAMPLE)
    parts, result = run(env, "overload")
    processes = processes_of(result.metrics)
    exchange = result.metrics["exchange"]
    return {
        "name": "overload",
        "rate": rate,
        "capacity": capacity,
        "offered": round(high),
        "overload_s": round(third, 2),
        "parallelism": parallelism,
        "host": host,
        **dataclasses.asdict(judge(joined(parts), third)),
        "in_flight_mb": round(exchange["peak_in_flight_bytes"] / 2**20, 2),
        "in_flight_bound_mb": round(exchange["bound_bytes"] / 2**20, 2),
        "peak_rss_mb": round(sum(p["peak_rss_bytes"] for p in processes) / 2**20),
    }


def capacity_of(parallelism: int, host: str, buffer_timeout: int | None) -> int:
    """Records per second that the same job does when nothing holds it back."""
    env = delayed_environment("capacity", CAPACITY_EVENTS, parallelism, host, buffer_timeout)
    source = DataGenSource(key_values, CAPACITY_EVENTS, schema=KEY_VALUE, block=16_384)
    through_keyed_stage(env.from_source(source, source_name="unpaced").map_batches(stamp), SAMPLE)
    _, result = run(env, "capacity")
    return round(CAPACITY_EVENTS / result.net_runtime_ms * 1000)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Percentiles before (without the first half, a warm-up), the worst under overload, and how
    long after the load fell latency was back; None: it did not come back."""

    before_p50_ms: float
    before_p99_ms: float
    worst_ms: float
    after_p50_ms: float | None
    after_p99_ms: float | None
    recovery_s: float | None


def judge(times: Int64s, third_s: float) -> Verdict:
    """`times`: when each record came and how old it was, ns. Steps change when records are due."""
    order = np.argsort(times[0], kind="stable")
    came, age = times[0][order], times[1][order]
    due = came - age
    start = due.min()
    rises, falls = start + third_s * 1e9, start + 2 * third_s * 1e9
    before = percentiles(age[(due >= start + third_s * 5e8) & (due < rises)])
    calm_ms = max(before["p99_ms"] * CALM_FACTOR, CALM_MS)
    back = calm_from(came, age, int(falls), calm_ms)
    after = {} if back is None else percentiles(age[came >= back])
    return Verdict(
        before["p50_ms"],
        before["p99_ms"],
        percentiles(age)["max_ms"],
        after.get("p50_ms"),
        after.get("p99_ms"),
        None if back is None else round(float(back - falls) / 1e9, 2),
    )


def calm_from(came: Int64s, age: Int64s, falls: int, calm_ms: float) -> int | None:
    """When the first of CALM_BINS calm bins in a row began, at or after `falls`."""
    first = int(came.searchsorted(falls))
    bins = (came[first:] - falls) // BIN_NS
    streak = 0
    for index in range(int(bins[-1]) + 1 if len(bins) else 0):
        lo, hi = bins.searchsorted([index, index + 1])
        ages = age[first + lo : first + hi]
        calm = len(ages) > 0 and float(np.percentile(ages, 99)) / 1e6 <= calm_ms
        streak = streak + 1 if calm else 0
        if streak == CALM_BINS:
            return falls + (index - CALM_BINS + 1) * BIN_NS
    return None
