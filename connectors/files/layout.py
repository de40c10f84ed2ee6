"""What a file source reads of a file, and how that becomes the source's rows.

    columns of the file  +  values of its folders  ->  filter  ->  the columns asked for

With a declared schema a column comes from the folders' names where they have it, else from the
file. Without one, the first file says which columns there are, and all files must have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError, ConnectorError
from .csv_schema import CsvSchema
from .filters import columns_in, comparable, guarantee, may_match, row_groups, selecting
from .folders import Roots, Values, inferred, scalar
from .format_names import make_format
from .formats import UTF_8, FileFormat, FileSplit, no_columns
from .text_lines import LINE, TextLines


@dataclass(frozen=True)
class Request:
    """What the user asked for. `roots`: above which folders are not columns; None: none are.
    `charset`: of CSV, JSON Lines and text. `csv`: how CSV files are, if not as by default. `read`:
    the columns that somebody reads; None: all. A name may be none of the files'."""

    format: str
    columns: tuple[str, ...] | None
    declared: pa.Schema | None
    filter: Any
    roots: Roots | None
    options: Mapping[str, Any] | None
    charset: str = UTF_8
    csv: CsvSchema | None = None
    read: frozenset[str] | None = None

    @property
    def lines(self) -> bool:
        """Whether the records are strings."""
        return self.format == "text"

    def reader(self, columns: tuple[str, ...] | None, declared: pa.Schema | None) -> FileFormat:
        if self.lines:
            return TextLines(None, LINE, self.options or {}, self.charset)
        return make_format(self.format, columns, declared, self.options, self.charset, self.csv)

    def values(self, url: str) -> Values:
        return {} if self.roots is None else self.roots.values(url)

    def resolve(self, files: Sequence[str]) -> Layout:
        """`files`: what is there now, at least one unless the schema is declared."""
        if self.lines:
            return Layout(self, LINE, None)
        if self.declared is not None:
            return Layout(self, self.declared, None)
        first = files[0]
        own = self.reader(None, None).schema_of(first)
        values = [self.values(url) for url in files]
        for url, found in zip(files, values, strict=True):
            if found.keys() != values[0].keys():
                raise _other_folders(url, list(found), list(values[0]))
        named = inferred(values)
        twice = [name for name in named.names if name in own.names]
        if twice:
            raise ConnectorError(
                f"file '{first}' has the columns {twice}, which its folders name as well: declare "
                "a schema (the folders' values are taken then), or give partitions=False"
            )
        return Layout(self, pa.schema([*own, *named]), first)


class Layout:
    """The columns of one source, resolved."""

    def __init__(self, request: Request, full: pa.Schema, first: str | None) -> None:
        """full: all columns that may be asked for. first: the file that says so; None: the user."""
        self.request = request
        self._full = full
        self._first = first
        self._folders = None if first is None else tuple(request.values(first))
        """The columns in folder names that all files must have; None: any."""
        asked = full.names if request.columns is None else request.columns
        missing = [name for name in asked if name not in full.names]
        if missing:
            raise no_columns(str(first), missing, full, asked)
        wanted = [name for name in asked if request.read is None or name in request.read] or asked
        self.output = pa.schema([(name, full.field(name).type) for name in wanted])
        self._comparable = comparable(full)
        self._filtered = (
            [] if request.filter is None else columns_in(request.filter, self._comparable)
        )
        self._needed = [name for name in full.names if name in {*wanted, *self._filtered}]
        self._parts: dict[tuple[str, ...], tuple[FileFormat, pa.Schema]] = {}
        """How files are read, by the columns that their folders name."""

    def reading(self, request: Request) -> Layout:
        """The same of a request that differs in what it reads."""
        return Layout(request, self._full, self._first)

    def values(self, url: str) -> dict[str, pa.Scalar]:
        """The columns that are read from the names of the file's folders."""
        found = self.request.values(url)
        if self._folders is not None and found.keys() != set(self._folders):
            raise _other_folders(url, list(found), self._folders)
        return {
            name: scalar(url, name, found[name], self._full.field(name).type)
            for name in self._needed
            if name in found
        }

    def file_part(self, named: Sequence[str]) -> tuple[FileFormat, pa.Schema]:
        """How a file is read whose folders give the columns `named`, and its own columns."""
        part = self._parts.get(tuple(named))
        if part is None:
            part = self._parts[tuple(named)] = self._make_part(named)
        return part

    def matching(self, files: Sequence[str]) -> list[str]:
        """The files whose folders do not exclude that the filter takes a row."""
        if self.request.filter is None or not files:
            return list(files)
        known = [guarantee(self.values(url)) for url in files]
        kept = may_match(self.request.filter, known, self._comparable)
        return [url for url, may in zip(files, kept, strict=True) if may]

    def splits(self, url: str) -> list[FileSplit]:
        """The file's splits; of Parquet without row groups in which nothing can match."""
        values = self.values(url)
        format, schema = self.file_part(tuple(values))
        wanted = self.request.filter
        if wanted is None:
            return format.plan(url, schema)
        kept = partial(
            row_groups,
            expression=wanted,
            columns=[name for name in self._filtered if name not in values],
            known=guarantee(values),
            schema=self._comparable,
        )
        return format.plan(url, schema, kept)

    def finishing(
        self, values: Mapping[str, pa.Scalar], most: int
    ) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """A function that makes rows of the source from at most `most` rows of a file, of which
        `file_part(values)` gave the columns."""
        names, wanted = self.output.names, self.request.filter
        fixed = {name: pa.repeat(value, most) for name, value in values.items()}
        if not fixed and wanted is None:
            return lambda batch: batch.select(names)
        select = None
        if wanted is not None:
            select = selecting(wanted, self._filtered, self._full)

        def finish(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = {name: batch.column(name) for name in batch.schema.names}
            columns |= {name: array.slice(0, len(batch)) for name, array in fixed.items()}
            whole = pa.RecordBatch.from_pydict(columns)
            return (whole if select is None else select(whole)).select(names)

        return finish

    def _make_part(self, named: Sequence[str]) -> tuple[FileFormat, pa.Schema]:
        request = self.request
        inside = [name for name in self._full.names if name not in named]
        if self._folders is not None:
            inside = [name for name in inside if name not in self._folders]
        read = [name for name in self._needed if name in inside] or inside[:1]
        if not read:
            raise ConfigurationError(
                f"a FileSource must read at least one column of the files; {list(named)} are all "
                "in the names of folders"
            )
        schema = pa.schema([(name, self._full.field(name).type) for name in read])
        all_read = request.columns is None and request.read is None
        selected = None if all_read else tuple(read)
        declared = None if request.declared is None else schema
        return request.reader(selected, declared), schema


def _other_folders(url: str, found: Sequence[str], first: Sequence[str]) -> ConnectorError:
    return ConnectorError(
        f"file '{url}' has the partition folders {list(found)}, but the first file has "
        f"{list(first)}: move it, declare a schema, or give partitions=False"
    )
