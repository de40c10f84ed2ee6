"""A join's further condition: a polars expression over the joined columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.errors import TypeMismatchError
from ...core.frames import frame_of
from ...core.value_types import empty_batch

if TYPE_CHECKING:
    import polars as pl


class Condition:
    """`needs`: the columns that the expression names; all if that cannot be told."""

    def __init__(self, expression: pl.Expr, schema: pa.Schema) -> None:
        self._expression = expression
        self.needs = _needed(expression, schema.names)
        empty = empty_batch(schema).select(self.needs)
        kind = self._values(empty).dtype
        import polars as pl

        if kind not in (pl.Boolean, pl.Null):
            raise TypeMismatchError(f"where={expression} gives {kind}; a condition gives Booleans")

    def mask(self, data: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Where it holds; null is no. `data` has the columns `needs`."""
        values = self._values(data)
        holds: npt.NDArray[np.bool_] = values.fill_null(False).to_numpy()
        if len(holds) == data.num_rows:
            return holds
        if len(holds) == 1 and not self._expression.meta.root_names():
            return np.full(data.num_rows, bool(holds[0]))
        raise TypeMismatchError(
            f"where={self._expression} gives {len(holds)} values for {data.num_rows} records: a "
            "condition is about single records"
        )

    def _values(self, data: pa.RecordBatch | pa.Table) -> pl.Series:
        import polars as pl

        try:
            return frame_of(data).select(self._expression).to_series()
        except pl.exceptions.PolarsError as error:
            raise TypeMismatchError(
                f"where={self._expression} cannot be computed on {data.schema.names}: {error}"
            ) from error


def _needed(expression: pl.Expr, names: list[str]) -> list[str]:
    used = set(expression.meta.root_names())
    if not used or expression.meta.has_multiple_outputs() or not used <= set(names):
        return names
    return [name for name in names if name in used]
