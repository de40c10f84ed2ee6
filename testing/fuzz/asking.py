"""The records of a case by way of a server that is asked for each, or for each batch, and gives
back what it was given: whatever the case's operator makes of them, it makes the same.

What is drawn here is drawn apart from the case, which stays what it was."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ...api.streams.async_data_stream import AsyncDataStream
from ...api.streams.data_stream import DataStream
from .cases import Case, Windows

ORDERLESS = ("count", "sum", "min", "max", "mean", "count_distinct", "approx_count_distinct")
"""Aggregates that do not ask in what order records come; sums of floats are made to be exact."""


def order_free(case: Case) -> bool:
    """Whether records may come in any order between two watermarks. At another parallelism records
    in flight are dealt out, and may come behind later ones."""
    operation = case.operation
    if not isinstance(operation, Windows) or operation.what != "aggregate" or case.changelog:
        return False
    if operation.trigger is not None or type(operation.assigner).__name__.startswith("Count"):
        return False
    return all(one.kind in ORDERLESS for one, _ in case.aggregates.values())


def asking_of(case: Case) -> str:
    """How the server is asked; empty: not at all."""
    rng = random.Random(f"asking of {case.seed}")
    how = rng.choice(("", "", "", "ordered", "unordered", "batches"))
    return how if order_free(case) else ""


def asked(case: Case, records: DataStream) -> DataStream:
    """The records as they are, half of the time by way of a server."""
    how = asking_of(case)
    if not how:
        return records
    rng = random.Random(f"answers of {case.seed}")
    capacity, longest = rng.choice((1, 3, 50)), rng.choice((0, 3, 20))

    async def pause(number: int) -> None:
        await asyncio.sleep(number % (longest + 1) / 1000)

    async def ask(row: Any) -> list[Any]:
        await pause(row.n)
        return [row]

    async def ask_all(batch: Any) -> Any:
        await pause(batch["n"][0].as_py())
        return batch

    if how == "batches":
        return records.async_map_batches(ask_all, capacity=capacity, ordered=rng.random() < 0.5)
    wait = getattr(AsyncDataStream, f"{how}_wait")
    stream: DataStream = wait(records, ask, 60_000, capacity, case.data.schema)
    return stream
