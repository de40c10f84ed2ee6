"""Some fields of tuples and rows, by their positions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from .records import OperatorSpec


@dataclass(frozen=True)
class ProjectSpec(OperatorSpec):
    """Columns stay columns, tuples tuples. Nothing else has positions."""

    indexes: tuple[int, ...]

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return None if left is None else projected(left, self.indexes)


def is_positional(names: list[str]) -> bool:
    """Whether the fields are those of a tuple, which positions name: f0, f1, ..."""
    return names == [f"f{at}" for at in range(len(names))]


def projected(schema: pa.Schema, indexes: tuple[int, ...]) -> pa.Schema:
    """The fields at these positions; those of a tuple are counted anew. IndexError if it has fewer,
    ValueError if a name comes twice."""
    fields = [schema.field(at) for at in indexes]
    if is_positional(schema.names):
        fields = [field.with_name(f"f{at}") for at, field in enumerate(fields)]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise ValueError(f"two fields would be called the same: {names}")
    return pa.schema(fields, metadata=schema.metadata)
