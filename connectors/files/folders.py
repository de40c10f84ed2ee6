"""Columns that are written in folder names: `day=3/kind=a%2Fb/part-0.parquet`.

What counts are the folders between the path that the source was given (up to its first wildcard)
and the file. Values are percent-encoded; `__HIVE_DEFAULT_PARTITION__` is null. Without a declared
type a column whose values all are whole numbers is int64 ("01" is 1, as in Spark), any other a
string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ...core.errors import ConnectorError
from .partitions import NULL
from .paths import root_of

Values = Mapping[str, str | None]
"""Column name -> value as text, in order of the folders."""

_WHOLE = re.compile(r"-?[0-9]{1,19}")


class Roots:
    """What a source was given; filesystems are asked when the first file is there."""

    def __init__(self, paths: Sequence[str], options: Mapping[str, Any] | None) -> None:
        self._paths = tuple(paths)
        self._options = options
        self._roots: tuple[str, ...] | None = None

    def values(self, url: str) -> Values:
        """What the names of the folders around a file say."""
        if self._roots is None:
            self._roots = tuple(root_of(path, self._options) for path in self._paths)
        inside = [url[len(root) + 1 :] for root in self._roots if url.startswith(f"{root}/")]
        found: dict[str, str | None] = {}
        for folder in max(inside, key=len, default="").split("/")[:-1]:
            name, equals, value = folder.partition("=")
            name = unquote(name)
            if not equals or not name:
                continue
            if name in found:
                raise ConnectorError(
                    f"file '{url}' is in two folders of the column '{name}': it cannot have two "
                    "values"
                )
            found[name] = None if value == NULL else unquote(value)
        return found


def inferred(values: Iterable[Values]) -> pa.Schema:
    """The types of the columns that these folders make; all must name the same columns."""
    held: dict[str, list[str]] = {}
    for one in values:
        for name, value in one.items():
            held.setdefault(name, []).extend(() if value is None else (value,))
    return pa.schema([(name, _type(texts)) for name, texts in held.items()])


def scalar(url: str, name: str, value: str | None, type: pa.DataType) -> pa.Scalar:
    """A value as its column has it. Raises ConnectorError naming file and value."""
    try:
        return pa.scalar(value, pa.string()).cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConnectorError(
            f"file '{url}': the value {value!r} of its folder is no {type}, which is the type of "
            f"the column '{name}': declare another type in the source's schema, or move the file "
            f"({error})"
        ) from error


def _type(texts: list[str]) -> pa.DataType:
    whole = texts and all(_WHOLE.fullmatch(text) for text in texts)
    if whole and all(-(1 << 63) <= int(text) < 1 << 63 for text in texts):
        return pa.int64()
    return pa.string()
