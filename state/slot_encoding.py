"""Numbers per slot as snapshots hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .stored import AccColumn
from .value_store import Codes

DEAD = "dead"
"""The column of flags that tells which slots are left out."""

Columns: TypeAlias = "list[tuple[AccColumn, pa.Array]]"
"""Columns as snapshots hold them."""


def encoded(
    columns: Sequence[AccColumn],
    arrays: Mapping[str, npt.NDArray[Any]],
    values: Mapping[str, Callable[[Codes], pa.Array]],
) -> list[tuple[AccColumn, pa.Array]]:
    """Columns as snapshots hold them: values for codes, the words of a column apart."""
    made = []
    for column in columns:
        array = arrays[column.name]
        if column.name in values:
            made.append((column, values[column.name](array)))
        elif column.words:
            words = array.view(np.int64).reshape(-1, len(column.words))
            for at, name in enumerate(column.words):
                if name is not None:
                    word = AccColumn(name, "int64")
                    made.append((word, pa.array(np.ascontiguousarray(words[:, at]))))
        else:
            made.append((column, pa.array(array)))
    return made
