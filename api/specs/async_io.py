"""Specs of asynchronous operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..functions.async_functions import AsyncRetryStrategy
from ..types.declared import Declared
from .records import OperatorSpec


@dataclass(frozen=True, kw_only=True)
class AsyncSpec(OperatorSpec):
    """What is asked outside and answered later.

    `timeout_s`: of one request with all its attempts; None: it may take for ever. `capacity`: how
    many requests a subtask has in flight. `ordered`: results in the order of the records."""

    function: Any
    timeout_s: float | None
    capacity: int
    ordered: bool
    retry: AsyncRetryStrategy[Any] | None = None
    schema: Declared | None = None


@dataclass(frozen=True, kw_only=True)
class AsyncWaitSpec(AsyncSpec):
    """`function`: AsyncFunction or an `async def` of one record, which gives a list of results."""

    writes_letters = True


@dataclass(frozen=True, kw_only=True)
class AsyncMapBatchesSpec(AsyncSpec):
    """`function`: an `async def` of one batch in `batch_format`, or a class with an async
    `__call__`; gives what a function of `map_batches` gives."""

    batch_format: Literal["arrow", "polars", "pandas", "numpy"] = "arrow"

    @property
    def no_letters(self) -> str | None:
        return (
            "a request is of a whole batch, and does not tell which record made it fail: ask for "
            "each record (AsyncDataStream.unordered_wait), or catch what may be raised"
        )
