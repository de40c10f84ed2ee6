"""Asynchronous requests for whole batches: what every stream offers, keyed or not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..functions.async_functions import AsyncRetryStrategy
from ..functions.async_validation import require_batch_coroutines, require_retries
from ..functions.validation import require_positive
from ..specs.async_io import AsyncMapBatchesSpec
from ..types.declared import declared_records
from ..types.durations import to_timedelta
from .records import BatchFormat, require_format
from .stream import Out, Stream


class AsyncBatches(Stream[Out]):
    """Part of `DataStream`."""

    def async_map_batches(
        self,
        func: Any,
        batch_format: BatchFormat = "arrow",
        output_type: Any = None,
        *,
        timeout: Any = 0,
        capacity: int = 100,
        ordered: bool = True,
        async_retry_strategy: AsyncRetryStrategy[Any] | None = None,
    ) -> Out:
        """As `map_batches`, but `func` is an `async def` of a batch, or a class with an async
        `__call__`, of which several calls are in flight: for models and databases elsewhere.

        `timeout`: a timedelta or milliseconds for one batch with all its attempts, 0: none; then a
        method `timeout(batch)` of the class gives the result, if it has one. `capacity`: how many
        batches each subtask has in flight. `ordered`: results in the order of the batches of each
        subtask, else as they come, but never past a watermark. `async_retry_strategy`: which
        outcomes are asked about again; None: none."""
        method = "async_map_batches"
        spec = AsyncMapBatchesSpec(
            function=require_batch_coroutines(method, func),
            timeout_s=timeout_seconds(method, timeout),
            capacity=require_positive(method, "capacity", capacity),
            ordered=ordered,
            retry=require_retries(method, async_retry_strategy),
            schema=declared_records(output_type),
            batch_format=require_format(method, batch_format),
        )
        return self._apply(spec, "AsyncMapBatches")


def timeout_seconds(method: str, timeout: Any) -> float | None:
    """A timedelta, milliseconds or PyFlink's Time as seconds; None for one of 0: never."""
    limit = to_timedelta(timeout, f"{method}: timeout")
    return limit / timedelta(seconds=1) if limit else None
