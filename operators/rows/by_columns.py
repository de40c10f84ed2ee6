"""Functions of map and filter on columns, where `core.compiled` has proved them to give the same.

It is asked batch by batch, and says None where the batch has to go by rows, through the function
itself: batches of Python objects, small ones, those whose rows somebody has had already (who may
have changed them), and those for which columns cannot tell exactly what the function would do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.types.declared import Declared, as_declared
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.errors import TypeMismatchError
from ...core.value_types import has_tuple_records

if TYPE_CHECKING:
    from ...core.compiled.reading import Reading
    from ...core.compiled.results import Columns
    from ...core.compiled.running import Leaf

T = TypeVar("T")

LEAST: Final = 64
"""Batches of fewer records go by rows, which is faster then."""

_PATIENCE: Final = 6
"""After so many batches in a row that columns could not do, all but every 64th go by rows."""


class ByColumns:
    """Of one function, which has been opened."""

    def __init__(
        self, call: Callable[..., Any], declared: Declared | None = None, *, truths: bool = False
    ) -> None:
        self._call = call
        self._declared = declared
        self._truths = truths
        self._schema: pa.Schema | None = None
        """Of the records that `_reading` is for; None: no batch has asked yet."""
        self._reading: Reading | None = None
        """None: the function is not the same on columns."""
        self._columns: Columns | None = None
        """Makes the results records of the declared type; None: by way of Python values."""
        self._missed = 0
        self._left_out = 0

    @property
    def reads(self) -> bool | None:
        """Whether the function runs on columns; None before the first batch that could."""
        return None if self._schema is None else self._reading is not None

    def mask(self, batch: Batch) -> npt.NDArray[np.bool_] | None:
        """Of a predicate: which records it is true for."""
        return self._tried(batch, self._mask)

    def results(self, batch: Batch) -> Batch | None:
        """One for each record, as they are declared."""
        return self._tried(batch, self._results)

    def _tried(self, batch: Batch, make: Callable[[list[Leaf], ColumnBatch], T]) -> T | None:
        if not isinstance(batch, ColumnBatch) or len(batch) < LEAST or batch.has_rows:
            return None
        schema = batch.data.schema
        if self._schema is None or not schema.equals(self._schema, check_metadata=True):
            self._read(schema)
        if self._reading is None:
            return None
        if self._left_out < 2 ** min(self._missed, _PATIENCE) - 1:
            self._left_out += 1
            return None
        self._left_out = 0
        if not self._reading.outside.same():
            self._read(schema)
        made = self._made(batch, make)
        self._missed = 0 if made is not None else self._missed + 1
        return made

    def _made(self, batch: ColumnBatch, make: Callable[[list[Leaf], ColumnBatch], T]) -> T | None:
        from ...core.compiled.kinds import Beyond
        from ...core.compiled.running import run

        if self._reading is None:
            return None
        try:
            return make(run(self._reading.block, batch.data), batch)
        except (Beyond, TypeMismatchError, pa.ArrowException):
            return None

    def _read(self, schema: pa.Schema) -> None:
        from ...core.compiled.operations import Refused
        from ...core.compiled.reading import read
        from ...core.compiled.results import columns_of

        self._schema, self._reading, self._columns = schema, None, None
        try:
            self._reading = read(self._call, schema, has_tuple_records(schema), truths=self._truths)
        except Refused:
            return
        if isinstance(self._declared, pa.Schema):
            self._columns = columns_of(self._reading.block, self._declared)

    def _mask(self, leaves: list[Leaf], batch: ColumnBatch) -> npt.NDArray[np.bool_]:
        from ...core.compiled.results import mask

        return mask(leaves, len(batch))

    def _results(self, leaves: list[Leaf], batch: ColumnBatch) -> Batch:
        from ...core.compiled.results import objects

        if self._columns is not None:
            return ColumnBatch(self._columns.data(leaves, len(batch)), batch.timestamps)
        values = ObjectBatch(objects(leaves, len(batch)), batch.timestamps)
        return values if self._declared is None else as_declared(values, self._declared)
