"""The records of one kind, of a stream of several."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ...core.union_type import UnionType
from ..types.declared import Declared
from .records import OperatorSpec


@dataclass(frozen=True)
class KindSpec(OperatorSpec):
    """The rows of `kind` in `column`; None: records are of several kinds themselves, or have one
    such column. `schema`: the rows' columns, where they are known."""

    kind: str
    column: str | None
    schema: Declared | None = None


def union_columns(schema: pa.Schema) -> list[str]:
    """The columns whose values are of several kinds."""
    return [field.name for field in schema if isinstance(field.type, UnionType)]
