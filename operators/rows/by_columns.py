"""Functions of map and filter on columns, where `core.compiled` proves them to give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.types.declared import Declared, as_declared
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.compiled.program import Block
from ...core.compiled.results import Columns, columns_of, mask, objects
from ...core.compiled.running import Leaf
from ...core.compiled.tried import Tried


class ByColumns(Tried):
    """Of one function, which has been opened. declared: what its results are declared as."""

    def __init__(
        self, call: Callable[..., Any], declared: Declared | None = None, *, truths: bool = False
    ) -> None:
        super().__init__(call, truths=truths)
        self._declared = declared

    def prepare(self, block: Block) -> Columns | None:
        """What makes the results columns of the declared type; None: by way of Python values."""
        declared = self._declared
        return columns_of(block, declared) if isinstance(declared, pa.Schema) else None

    def mask(self, batch: Batch) -> npt.NDArray[np.bool_] | None:
        """Of a predicate: which records it is true for; None: the batch goes by rows."""
        made: npt.NDArray[np.bool_] | None = self.tried(batch, _mask)
        return made

    def results(self, batch: Batch) -> Batch | None:
        """One for each record, as they are declared; None: the batch goes by rows."""
        made: Batch | None = self.tried(batch, self._results)
        return made

    def _results(self, leaves: list[Leaf], batch: ColumnBatch, columns: Columns | None) -> Batch:
        if columns is not None:
            return ColumnBatch(columns.data(leaves, len(batch)), batch.timestamps)
        values = ObjectBatch(objects(leaves, len(batch)), batch.timestamps)
        return values if self._declared is None else as_declared(values, self._declared)


def _mask(leaves: list[Leaf], batch: ColumnBatch, prepared: Any) -> npt.NDArray[np.bool_]:
    return mask(leaves, len(batch))
