"""Filters of file sources: pyarrow expressions, such as `pc.field("day") == 3`.

Arrow itself simplifies them by what is known of a file (the values in its folders' names) and of a
Parquet row group (its statistics): what can hold no match is not read. The rows that are read are
filtered as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.batch import take_rows
from ...core.errors import ConfigurationError
from ...core.value_types import empty_table

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Arrow compares these only."""

_MOST_FLOATS = 6


def checked(expression: Any) -> Any:
    """The user's filter, if it is one."""
    if expression is None or isinstance(expression, pc.Expression):
        return expression
    raise ConfigurationError(
        f"the filter of a FileSource must be a pyarrow expression, for instance "
        f"pyarrow.compute.field('day') == 3, is {type(expression).__name__}: only these can be "
        "matched with folders and Parquet's statistics; for others use stream.filter(...)"
    )


def columns_in(expression: Any, schema: pa.Schema) -> list[str]:
    """The columns that an expression reads. Raises ConfigurationError if it reads others, or is no
    condition over columns of these types."""
    empty = empty_table(schema)
    try:
        empty.filter(expression)
    except (pa.ArrowException, TypeError) as error:
        raise ConfigurationError(
            f"the filter {expression} of a FileSource does not fit the columns "
            f"{[f'{field.name}: {field.type}' for field in schema]}: {error}"
        ) from error
    return [name for name in schema.names if _needs(expression, empty, name)]


def _needs(expression: Any, empty: pa.Table, name: str) -> bool:
    try:
        empty.drop_columns([name]).filter(expression)
    except (pa.ArrowException, TypeError):
        return True
    return False


def comparable(schema: pa.Schema) -> pa.Schema:
    """The columns as expressions can read them."""
    return pa.schema([(field.name, _PLAIN.get(field.type, field.type)) for field in schema])


def selecting(
    expression: Any, columns: Sequence[str], schema: pa.Schema
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that takes the rows of batches for which the expression, over `columns`, is true;
    all columns are of the schema."""
    if not any("_view" in str(field.type) for field in schema):
        return lambda batch: batch.filter(expression)
    row = "_".join(["row", *columns])
    types = {name: comparable(schema).field(name).type for name in columns}

    def select(batch: pa.RecordBatch) -> pa.RecordBatch:
        read = {name: batch.column(name).cast(type) for name, type in types.items()}
        numbered = pa.RecordBatch.from_pydict({**read, row: pa.array(range(len(batch)))})
        return take_rows(batch, numbered.filter(expression).column(row))

    return select


def guarantee(values: Mapping[str, pa.Scalar]) -> Any:
    """That the columns have these values, as an expression; None if there are none."""
    known = None
    for name, value in values.items():
        column = pc.field(name)
        value = value.cast(_PLAIN.get(value.type, value.type))
        one = column == value if value.is_valid else column.is_null()
        known = one if known is None else known & one
    return known


def may_match(expression: Any, guarantees: Sequence[Any], schema: pa.Schema) -> list[bool]:
    """Of each guarantee, whether a row that it holds for can match."""
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    format, nowhere = ds.CsvFileFormat(), LocalFileSystem()
    known = [pc.scalar(True) if one is None else one for one in guarantees]
    files = [
        format.make_fragment(str(i), nowhere, partition_expression=one)
        for i, one in enumerate(known)
    ]
    dataset = ds.FileSystemDataset(files, schema, format, nowhere)
    kept = {int(file.path) for file in dataset.get_fragments(filter=expression)}
    return [i in kept for i in range(len(files))]


def _nans_may_match(expression: Any, floats: Sequence[str], known: Any, schema: pa.Schema) -> bool:
    """Whether a row can match in which some of these columns are no number: statistics leave such
    rows out, and Arrow takes them for all."""
    if len(floats) > _MOST_FLOATS:
        return True
    chosen = [some for n in range(len(floats)) for some in combinations(floats, n + 1)]
    nan = [
        guarantee({name: pa.scalar(math.nan, schema.field(name).type) for name in some})
        for some in chosen
    ]
    guarantees = [one if known is None else one & known for one in nan]
    return any(may_match(expression, guarantees, schema)) if guarantees else False


def row_groups(
    file: Any, expression: Any, columns: Sequence[str], known: Any, schema: pa.Schema
) -> set[int] | None:
    """The row groups of an open Parquet file whose statistics do not exclude a match; None: all.
    columns: those of the file that the expression reads. known: what its folders say."""
    import pyarrow.dataset as ds

    floats = [name for name in columns if pa.types.is_floating(schema.field(name).type)]
    nested = any(pa.types.is_nested(schema.field(name).type) for name in columns)
    if nested or _nans_may_match(expression, floats, known, schema):
        return None
    more = {} if known is None else {"partition_expression": known}
    fragment = ds.ParquetFileFormat().make_fragment(file, **more)
    parts = fragment.split_by_row_group(expression, schema=schema)
    return {group.id for part in parts for group in part.row_groups}
