"""What of records the built-in functions of windows take, as columns."""

from __future__ import annotations

import pyarrow as pa

from ..api.specs.windows import BuiltinWindow, WindowSpec
from ..api.windows.session_windows import DYNAMIC
from ..core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ..core.row_values import field_of
from ..core.value_types import empty_batch


def fields_needed(spec: WindowSpec) -> list[str] | None:
    """The fields that aggregates and session gaps take from records; None: any."""
    if not isinstance(spec.function, BuiltinWindow):
        return None
    wanted = [spec.assigner.extractor] if isinstance(spec.assigner, DYNAMIC) else []
    wanted = [one for one in wanted if isinstance(one, str) or not callable(one)]
    for _, one in spec.function.aggregates:
        wanted += [each for each in (one.expression, one.by, one.condition) if each is not None]
    names = [one for one in wanted if isinstance(one, str)]
    return list(dict.fromkeys(names)) if len(names) == len(wanted) else None


def needed_columns(batch: Batch, names: list[str] | None) -> ColumnBatch:
    """The fields `names` of records as columns (None: all). Of objects, others are left out: they
    may be what no column holds."""
    if names is None or not isinstance(batch, ObjectBatch):
        return to_columns(batch)
    if not names:
        return ColumnBatch(empty_batch(pa.schema([])), batch.timestamps)
    try:
        rows = [{name: field_of(value, name) for name in names} for value in batch.values]
    except (LookupError, AttributeError, TypeError):
        return to_columns(batch)  # which says what is wrong
    return to_columns(ObjectBatch(rows, batch.timestamps))
