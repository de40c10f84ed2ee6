"""Cuts a batch by the values of columns, for sinks that write `name=value` folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrays import numpy_of
from ...core.errors import TypeMismatchError

NULL = "__HIVE_DEFAULT_PARTITION__"


def split_by(data: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(folder, rows without the partition columns) per distinct value, in order of appearance;
    rows keep their order. The folder is `a=1/b=x/`, values percent-encoded, null as in Hive."""
    missing = [name for name in names if name not in data.schema.names]
    if missing:
        raise TypeMismatchError(
            f"no partition column {missing}: the records have {data.schema.names}"
        )
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
        folder = "".join(f"{name}={_text(value)}/" for name, value in values)
        yield folder, rest.take(pa.array(np.flatnonzero(inverse == group)))


def _text(value: Any) -> str:
    return NULL if value is None else quote(str(value), safe=" ")
