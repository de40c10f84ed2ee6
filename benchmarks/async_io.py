"""How many asynchronous requests a job makes per second: each record waits for 10 ms, thousands at
once. What it takes is the loop's and the operator's own: `asyncio.sleep` asks nobody."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from strom import AsyncDataStream, AsyncFunction, DataStream, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource

from .measure import Setting, measured
from .streams import words

CALL_S = 0.01
BLOCK = 4_096
ORDERS = ("ordered", "unordered")


class Ask(AsyncFunction[str, str]):
    """Takes 10 ms for each record."""

    async def async_invoke(self, value: str) -> list[str]:
        await asyncio.sleep(CALL_S)
        return [value]


def asked(
    env: StreamExecutionEnvironment, events: int, order: str, capacity: int, parallelism: int
) -> DataStream:
    """`capacity` requests are in flight in all subtasks together."""
    source = DataGenSource(words, events, block=BLOCK)
    wait = getattr(AsyncDataStream, f"{order}_wait")
    each = max(1, capacity // parallelism)
    stream: DataStream = wait(
        env.from_source(source, source_name="words"), Ask(), timedelta(seconds=60), each
    )
    return stream


def measure_async(
    order: str, events: int, capacity: int, parallelism: int, host: str, interval: float | None
) -> dict[str, Any]:
    """One line."""
    setting = Setting(f"async_{order}", events, parallelism, host, interval)
    run = measured(setting, lambda env: asked(env, events, order, capacity, parallelism))
    return {
        "name": setting.name,
        "events": events,
        **asdict(run),
        "cpu_s_per_m_events": round(run.cpu_s / events * 1e6, 3),
        "call_ms": CALL_S * 1000,
        "capacity": capacity,
        "parallelism": parallelism,
        "host": host,
        "checkpoint_interval_s": interval,
    }
