"""An AsyncFunction: one request per record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...api.functions.async_functions import AsyncFunction
from ...api.specs.async_io import AsyncWaitSpec
from ...api.types.declared import as_declared
from ...core.batch import Batch, ObjectBatch
from ..rows.emitted import keeper, list_keeper
from .operator import AsyncOperator
from .requests import Emission, Request
from .runner import Calls, listed


class AsyncWaitOperator(AsyncOperator):
    """Results carry the timestamp of the record that they come from."""

    _spec: AsyncWaitSpec
    _chunk = 4

    def __init__(self, spec: AsyncWaitSpec) -> None:
        super().__init__(spec)

    @property
    def _limit(self) -> int:
        return max(1, self.ctx.config.batch_size)

    def _calls(self) -> Calls:
        function, config = self._spec.function, self.ctx.config
        lenient = self.on_error is not None
        typed = lenient and self._spec.schema is not None
        given, keep_all = keeper(config), list_keeper(config)
        if isinstance(function, AsyncFunction) or hasattr(function, "async_invoke"):
            return Calls(
                function.async_invoke,
                given,
                self._results("async_invoke"),
                getattr(function, "timeout", _late),
                getattr(function, "open", None),
                getattr(function, "close", None),
                not typed,
                "async_invoke",
                "record",
                keep_all,
                lenient,
            )
        what = "the async function"
        return Calls(
            function,
            given,
            self._results(what),
            _late,
            None,
            None,
            not typed,
            what,
            "record",
            keep_all,
            lenient,
        )

    def _results(self, what: str) -> Callable[[Any, Any], list[Any]]:
        """`Calls.results`. Where records are put aside, what does not fit the declared type is
        found here, record by record, and not where the results of many go out."""
        results, declared = listed(what), self._spec.schema
        if self.on_error is None or declared is None:
            return results

        def fitting(value: Any, result: Any) -> list[Any]:
            found = results(value, result)
            if found:
                as_declared(ObjectBatch(found), declared)
            return found

        return fitting

    def _of(self, batch: Batch) -> list[Request]:
        if batch.timestamps is None:
            return [Request(value, None) for value in batch.rows()]
        stamps = batch.timestamps.tolist()
        return [Request(value, at) for value, at in zip(batch.rows(), stamps, strict=True)]

    def _emit(self, emission: Emission) -> None:
        stamps = None
        if emission.stamps[0] is not None:
            stamps = np.array(emission.stamps, dtype=np.int64)
            if emission.counts is not None:
                stamps = np.repeat(stamps, emission.counts)
        batch = ObjectBatch(emission.values, stamps)
        declared = self._spec.schema
        self.out.emit(batch if declared is None else as_declared(batch, declared))

    def _stored(self, request: Request) -> Any:
        return (request.value, request.stamp, request.results)

    def _loaded(self, stored: Any) -> Request:
        return Request(*stored)


def _late(value: Any) -> Any:
    raise TimeoutError(f"Async function call has timed out for input: {value}")
