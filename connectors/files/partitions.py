"""Cuts a batch by the values of columns, for sinks that write `name=value` folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrays import numpy_of
from ...core.errors import TypeMismatchError
from ...core.taking import take_rows

_SPECIAL = re.compile(r"[%/=\x00-\x1f]")

NULL = "__HIVE_DEFAULT_PARTITION__"


def unfit(schema: pa.Schema, names: Sequence[str]) -> str | None:
    """Which of the columns has no values that could be a folder's name, and its type."""
    for name in names:
        if name in schema.names and not _has_name(schema.field(name).type):
            return (
                f"column '{name}' of type {schema.field(name).type}, whose values have no text "
                "that could be a folder's name: partition by text, numbers, dates or times"
            )
    return None


def _has_name(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _has_name(kind.value_type)
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or kind == pa.string_view()
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
        or types.is_null(kind)
    )


def split_by(data: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(folder, rows without the partition columns) per distinct value, in order of appearance;
    rows keep their order. The folder is `a=1/b=x/`, values percent-encoded, null as in Hive."""
    missing = [name for name in names if name not in data.schema.names]
    if missing:
        raise TypeMismatchError(
            f"no partition column {missing}: the records have {data.schema.names}"
        )
    odd = unfit(data.schema, names)
    if odd is not None:
        raise TypeMismatchError(f"a sink cannot partition by {odd}")
    rest = data.select([name for name in data.schema.names if name not in names])
    codes = np.zeros(data.num_rows, dtype=np.int64)
    for name in names:
        encoded = pc.dictionary_encode(data.column(name), null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + numpy_of(encoded.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    _, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
    for group in np.argsort(firsts, kind="stable").tolist():
        first = int(firsts[group])
        values = [(name, data.column(name)[first].as_py()) for name in names]
        folder = "".join(f"{_name(name)}={_text(value)}/" for name, value in values)
        yield folder, take_rows(rest, pa.array(np.flatnonzero(inverse == group)))


def _name(name: str) -> str:
    """Without what would make it another folder, or another name when it is read."""
    return _SPECIAL.sub(lambda match: quote(match[0], safe=""), name)


def _text(value: Any) -> str:
    return NULL if value is None else quote(str(value), safe=" ")
