"""`async_map_batches`: one request per batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.specs.async_io import AsyncMapBatchesSpec
from ...api.types.declared import as_declared
from ...core.batch import Batch, ColumnBatch, to_columns
from ...core.batch_data import batch_data, batch_of
from ...core.constants import CHUNK_BATCHES
from ..base import Output
from ..batches.map_batches import CONVERT, result_batch, result_timestamps
from .operator import AsyncOperator
from .requests import Emission, Request
from .runner import Calls

METHOD = "async_map_batches"


class AsyncMapBatchesOperator(AsyncOperator):
    """A request's value is a batch; its results are the parts of one, with their timestamps."""

    _spec: AsyncMapBatchesSpec
    _chunk = 1
    _limit = 1

    def __init__(self, spec: AsyncMapBatchesSpec) -> None:
        super().__init__(spec)

    def _calls(self) -> Calls:
        function, convert = self._spec.function, CONVERT[self._spec.batch_format]
        instance = function() if isinstance(function, type) else function
        late = getattr(instance, "timeout", _late)
        return Calls(
            lambda batch: instance(convert(batch.data)),
            None,
            self._results,
            lambda batch: late(convert(batch.data)),
            getattr(instance, "open", None),
            getattr(instance, "close", None),
            False,
            "the function of async_map_batches",
            "batch",
            _same,
        )

    def _results(self, asked: ColumnBatch, result: Any) -> list[Batch]:
        """On the loop: what the function gave for a batch, in parts."""
        batch = result_batch(result, self.ctx, METHOD, self._spec.schema)
        if self._spec.schema is not None:
            batch = as_declared(batch, self._spec.schema)
        rows = len(batch)
        if not rows:
            return []
        batch = batch.with_timestamps(result_timestamps(asked.timestamps, rows))
        size = max(len(asked), self.ctx.config.batch_size * CHUNK_BATCHES)
        return [batch.slice(at, min(size, rows - at)) for at in range(0, rows, size)]

    def _of(self, batch: Batch) -> list[Request]:
        return [Request(to_columns(batch), None)]

    def _emit(self, emission: Emission) -> None:
        _emit_all(self.out, emission.values)

    def _stored(self, request: Request) -> Any:
        results = request.results
        return batch_data(request.value), None if results is None else list(
            map(batch_data, results)
        )

    def _loaded(self, stored: Any) -> Request:
        value, results = stored
        return Request(
            batch_of(value), None, None if results is None else list(map(batch_of, results))
        )


def _emit_all(out: Output, batches: Sequence[Batch]) -> None:
    for batch in batches:
        out.emit(batch)


def _same(batches: Any) -> Any:
    return batches


def _late(batch: Any) -> Any:
    raise TimeoutError("no answer came in time")
