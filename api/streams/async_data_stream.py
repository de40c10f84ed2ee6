"""Asynchronous requests for each record of a stream, under PyFlink's names."""

from __future__ import annotations

from typing import Any

from ...core.errors import ConfigurationError
from ..functions.async_functions import NO_RETRY_STRATEGY, AsyncFunction, AsyncRetryStrategy
from ..functions.async_validation import require_coroutines, require_retries
from ..functions.validation import require_positive
from ..specs.async_io import AsyncWaitSpec
from ..types.declared import declared_records
from .async_batches import timeout_seconds
from .data_stream import DataStream


class AsyncDataStream:
    """Gives streams of what an `AsyncFunction` (or an `async def` of one record, which gives a
    list) answers. See docs/async.md.

    `timeout`: a timedelta, or milliseconds, for one record with all its attempts; then the
    function's `timeout` gives its results. 0: it may take for ever. `capacity`: how many requests
    each subtask has in flight.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Any,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Results as they come, but never past a watermark."""
        return _wait(
            "unordered_wait",
            data_stream,
            async_function,
            timeout,
            NO_RETRY_STRATEGY,
            capacity,
            output_type,
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Any,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """The same; outcomes that the strategy does not want are asked about again."""
        return _wait(
            "unordered_wait_with_retry",
            data_stream,
            async_function,
            timeout,
            async_retry_strategy,
            capacity,
            output_type,
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Any,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Results in the order of the records of each subtask."""
        return _wait(
            "ordered_wait",
            data_stream,
            async_function,
            timeout,
            NO_RETRY_STRATEGY,
            capacity,
            output_type,
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Any,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """The same; outcomes that the strategy does not want are asked about again."""
        return _wait(
            "ordered_wait_with_retry",
            data_stream,
            async_function,
            timeout,
            async_retry_strategy,
            capacity,
            output_type,
        )


def _wait(
    method: str,
    stream: DataStream,
    function: Any,
    timeout: Any,
    strategy: Any,
    capacity: int,
    output_type: Any,
) -> DataStream:
    if not isinstance(stream, DataStream):
        raise ConfigurationError(f"{method}: expected a DataStream, got {stream!r}")
    ordered = method.startswith("ordered")
    spec = AsyncWaitSpec(
        function=require_coroutines(method, function),
        timeout_s=timeout_seconds(method, timeout),
        capacity=require_positive(method, "capacity", capacity),
        ordered=ordered,
        retry=require_retries(method, strategy),
        schema=declared_records(output_type),
    )
    return stream._apply(spec, "OrderedWait" if ordered else "UnorderedWait")
