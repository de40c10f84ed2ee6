"""Rolling aggregates: kernels where what they keep is numbers, else row by row.

An operator works in one way for its whole life, because each keeps its own state. The first batch
decides, a restored snapshot before that; plan foretells it where the columns are known.
"""

from __future__ import annotations

import pyarrow as pa

from ..api.specs.records import RollingSpec
from ..core.arrays import storage
from ..core.keys import FunctionKey
from ..engine.graph.implementation import Implementation
from .window_forms import RowByRow

PYTHON_KEY = "the key is a Python function: name a column or an expression for kernels"
FIRST_BATCH = (
    "the first batch decides: kernels if it has columns, and numbers in them; rows else (declare "
    "output_type for columns)"
)
KERNEL = "rolling aggregate on columns"
ROWS = "rolling aggregate row by row"


def rolling(spec: RollingSpec) -> Implementation:
    """How it runs, as far as the spec tells."""
    if isinstance(spec.key, FunctionKey):
        return Implementation("rows", ROWS, PYTHON_KEY, RowByRow())
    return Implementation("kernel or rows", "rolling aggregate", remarks=(FIRST_BATCH,))


def foretold(spec: RollingSpec, columns: pa.Schema) -> Implementation | None:
    """How it runs on these columns; None where that fails."""
    field = spec.field
    at = field if isinstance(field, int) else columns.get_field_index(field)
    if not -len(columns) <= at < len(columns) or (at < 0 and isinstance(field, str)):
        return None
    at %= len(columns)
    if on_numbers(spec, at, columns):
        return Implementation("kernel", KERNEL)
    which = next(f for f in _needed(spec, at, columns) if storage(f.type) is None)
    return Implementation(
        "rows", ROWS, f"'{which.name}' holds values of type {which.type}: kernels take numbers"
    )


def on_numbers(spec: RollingSpec, at: int, columns: pa.Schema) -> bool:
    """Whether kernels can keep what the aggregate of field `at` needs: the field or, for min_by and
    max_by, the whole record."""
    return all(storage(field.type) is not None for field in _needed(spec, at, columns))


def _needed(spec: RollingSpec, at: int, columns: pa.Schema) -> list[pa.Field]:
    return list(columns) if spec.kind.endswith("_by") else [columns.field(at)]
