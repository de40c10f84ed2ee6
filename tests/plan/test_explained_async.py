"""What `explain()` says of asynchronous functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from explained_kit import objects, records, said
from strom import AsyncDataStream


async def ask(value: Any) -> Any:
    return [value]


TABLE: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "asked": (
        lambda env: AsyncDataStream.ordered_wait(records(env), ask, 1000),
        [
            "rows: a coroutine for each record, 100 in flight, results in their order",
            "not faster: the function is Python: async_map_batches() asks for a batch at once",
        ],
    ),
    "asked in batches": (
        lambda env: records(env).async_map_batches(ask, "polars", capacity=5, ordered=False),
        ["batches: a coroutine for each batch, as polars, 5 in flight, results as they come"],
    ),
    "asked in batches of objects": (
        lambda env: objects(env).async_map_batches(ask),
        [
            "batches: a coroutine for each batch, as arrow, 100 in flight, results in their order",
            "its columns are not known: Python objects are turned into columns batch by batch "
            "(declare output_type where they are made)",
        ],
    ),
}


@pytest.mark.parametrize("program", TABLE)
def test_each_operator(program: str) -> None:
    build, expected = TABLE[program]
    assert said(build) == expected
