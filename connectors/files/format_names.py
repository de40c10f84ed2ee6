"""The formats that are told by a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError
from ..json_types import unread
from .avro import AvroFiles
from .csv_schema import CsvSchema
from .formats import UTF_8, FileFormat, ParquetFiles
from .text_formats import CsvFiles, DescribedCsvFiles, JsonLinesFiles, TextFormat


def make_format(
    name: str,
    columns: Sequence[str] | None,
    declared: pa.Schema | None,
    options: Mapping[str, Any] | None,
    charset: str = UTF_8,
    described: CsvSchema | None = None,
) -> FileFormat:
    """`charset`: of text, as `known_charset` returns it. `described`: of CSV only."""
    texts: dict[str, type[TextFormat]] = {"csv": CsvFiles, "jsonl": JsonLinesFiles}
    if name not in ("parquet", *texts, "avro"):
        known = ["parquet", *texts, "avro", "text"]
        raise ConfigurationError(f"file format must be one of {known}, is {name!r}")
    if name not in texts and charset != UTF_8:
        raise ConfigurationError(
            f"{name.capitalize()} files have text in UTF-8: charset {charset!r} is for CSV, "
            "JSON Lines and text"
        )
    if columns is not None and declared is not None:
        unknown = [column for column in columns if column not in declared.names]
        if unknown:
            raise ConfigurationError(f"columns {unknown} are not in the schema {declared.names}")
    selected = None if columns is None else tuple(columns)
    if described is not None:
        if name != "csv":
            raise ConfigurationError(f"a CsvSchema describes files of format 'csv', not {name!r}")
        return DescribedCsvFiles(selected, declared, options or {}, charset, csv=described)
    if name == "parquet":
        return ParquetFiles(selected, declared, options or {})
    if name == "avro":
        return AvroFiles(selected, declared, options or {})
    odd = unread(declared) if name == "jsonl" and declared is not None else None
    if odd is not None:
        raise ConfigurationError(
            f"column '{odd.name}' is declared as {odd.type}, which JSON has no form for: declare "
            "what is in the files, such as a string, and convert it behind the source"
        )
    return texts[name](selected, declared, options or {}, charset)
