"""Values of one CSV line each as columns, and columns as such lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ...api.types.type_info import schema_of
from ...core.arrays import numpy_of
from ...core.batch import Batch, to_columns
from ...core.errors import ConfigurationError
from ..csv_text import CsvDialect, check_types, converted, lines
from .formats import Decoded, Format, joined, with_refused
from .serialization import Encoder, columns_of

_LINE_BREAKS = "[\r\n]"


@dataclass(frozen=True)
class CsvFormat(Format):
    """One line of CSV a record, by Arrow's own parser, without Python per record.

    columns: the columns' names and types, in the order of the fields (anything that declares a row
        type). Malformed is a record with another number of fields, a field of another type (an
        empty one, too, but for text, unless that is the null literal), more than one line, or none.
    """

    columns: Any
    dialect: CsvDialect = field(default_factory=CsvDialect)
    _schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        schema = schema_of(self.columns)
        if schema is None or not len(schema):
            raise ConfigurationError("CsvFormat needs the columns' names and types")
        check_types(schema, "CsvFormat")
        object.__setattr__(self, "_schema", schema)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array) -> Decoded:
        texts, alone = self._lines(values)
        parts: list[pa.RecordBatch] = []
        whys: dict[int, str] = {}
        nothing = numpy_of(values.is_null())
        for first, last in _runs(alone):
            if nothing[first]:
                whys[first] = "a null value is no CSV line"
            else:
                self._parse(texts, first, last, parts, whys)
        made = joined(parts, self._schema)
        return with_refused(made, whys, len(values))

    def _lines(self, values: pa.Array) -> tuple[pa.Array, Any]:
        """Without the line break at their end; and which must be parsed alone: parsed with others,
        those may pass for more than one record."""
        texts = pc.replace_substring_regex(values, "\r?\n$|\r$", "")
        if self.dialect.comments:
            texts = pc.replace_substring_regex(texts, "^(#[^\r\n]*([\r\n]+|$))+", "")
        texts = texts.fill_null(b"")
        odd = pc.or_(pc.match_substring_regex(texts, _LINE_BREAKS), values.is_null())
        if self.dialect.comments:
            odd = pc.or_(odd, pc.equal(pc.binary_length(texts), 0))
        return texts, numpy_of(odd)

    def _parse(
        self,
        texts: pa.Array,
        first: int,
        last: int,
        parts: list[pa.RecordBatch],
        whys: dict[int, str],
    ) -> None:
        """Records first..last-1, by halves where one is malformed."""
        made = self._parsed(texts[first:last])
        if not isinstance(made, str):
            parts.append(made)
        elif last - first == 1:
            whys[first] = made
        else:
            middle = (first + last) // 2
            self._parse(texts, first, middle, parts, whys)
            self._parse(texts, middle, last, parts, whys)

    def _parsed(self, texts: pa.Array) -> pa.RecordBatch | str:
        """A row for each text; why not, if one is malformed.

        The first text stands at the end once more: a quote that the last one leaves open takes it
        in, and a row is missing. With several lines in a text that says nothing, so one that is
        parsed alone is read by itself as well."""
        values = texts.to_pylist()
        try:
            table = self._read([*values, values[0]])
            found = len(table) - 1
            if found == len(values) == 1:
                found = len(self._read(values))
            if found != len(values):
                return f"{len(values)} CSV lines were read as {found}"
            table.validate(full=True)
            batches = table.combine_chunks().to_batches()
            return converted(batches[0][: len(values)], self._schema, self.dialect)
        except pa.ArrowInvalid as error:
            return str(error)

    def _read(self, values: list[bytes]) -> pa.Table:
        whole = b"\n".join(values) + b"\n"
        names = self._schema.names
        return pacsv.read_csv(
            pa.BufferReader(whole),
            pacsv.ReadOptions(use_threads=False, block_size=len(whole) + 1, column_names=names),
            self.dialect.parse_options(empty_lines=True),
            self.dialect.convert_options(self._schema),
        )


class CsvEncoder(Encoder):
    """A line of CSV a record, of its columns in their order.

    columns: which; None: all. type_info: a row type that records are turned into first."""

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        type_info: Any = None,
        dialect: CsvDialect | None = None,
    ) -> None:
        self.columns = None if columns is None else tuple(columns)
        self.schema = schema_of(type_info)
        self.dialect = dialect or CsvDialect(line_delimiter="")
        if self.schema is not None:
            check_types(self.schema, "CsvEncoder")

    def __repr__(self) -> str:
        return f"CsvEncoder({'' if self.columns is None else list(self.columns)})"

    def encode(self, batch: Batch) -> pa.Array:
        typed = batch if self.schema is None else to_columns(batch, self.schema)
        return lines(columns_of(typed, self.columns, "CsvEncoder"), self.dialect, "CsvEncoder")


def _runs(alone: Any) -> list[tuple[int, int]]:
    """(first, behind the last) of each record that is parsed alone, and of those between."""
    runs, first = [], 0
    for at in np.flatnonzero(alone).tolist():
        if at > first:
            runs.append((first, at))
        runs.append((at, at + 1))
        first = at + 1
    if first < len(alone):
        runs.append((first, len(alone)))
    return runs
