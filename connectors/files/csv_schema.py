"""`CsvSchema`: PyFlink's description of CSV files, for reading and writing.

schema = CsvSchema.builder().add_number_column("id").add_string_column("name").build()
source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "in").build()
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ...api.types.type_info import TypeInfo, Types
from ...core.errors import ConfigurationError
from ..csv_text import CsvDialect, check_types


@dataclass(frozen=True)
class CsvSchema:
    """The columns of CSV files, in order, and how they are told apart. Made by `builder`.

    use_header: whether the first line holds the columns' names; it is passed over when read, since
    columns go by their order, unless strict_headers: then it must be as the schema has it.
    skip_first_data_row: whether the first line behind that is passed over.
    """

    schema: pa.Schema
    dialect: CsvDialect = field(default_factory=CsvDialect)
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        return CsvSchemaBuilder()

    def get_type_info(self) -> TypeInfo:
        """The row type of the records."""
        kinds = [TypeInfo(str(item.type), item.type) for item in self.schema]
        return Types.ROW_NAMED(self.schema.names, kinds)

    def size(self) -> int:
        return len(self.schema)

    def __len__(self) -> int:
        return len(self.schema)


class CsvSchemaBuilder:
    """Each method returns the builder. Types are whatever declares one: `Types.INT()`, a pyarrow
    type."""

    def __init__(self) -> None:
        self._fields: list[tuple[str, pa.DataType]] = []
        self._delimiters: dict[str, str] = {}
        """Between elements, of the array columns that have one of their own."""
        self._made = CsvSchema(pa.schema([]))

    def add_array_column(
        self, name: str, separator: str = ";", element_type: Any = None
    ) -> CsvSchemaBuilder:
        """An array of text, unless told otherwise."""
        self._delimiters[name] = separator
        return self._add(name, pa.list_(_arrow(element_type, pa.string())))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, pa.bool_())

    def add_number_column(self, name: str, number_type: Any = None) -> CsvSchemaBuilder:
        """Whole numbers of 64 bits, unless told otherwise."""
        return self._add(name, _arrow(number_type, pa.int64()))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, pa.string())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """All columns of another one."""
        self._delimiters |= dict(schema.dialect.array_delimiters)
        for item in schema.schema:
            self._add(item.name, item.type)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        self._fields = []
        self._delimiters = {}
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Not there for files: raises ConfigurationError if they are to be allowed."""
        if allow:
            raise ConfigurationError(
                "CsvSchema: comments in CSV files are not known: take them out of the files"
            )
        return self

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Not there: always raises ConfigurationError."""
        raise ConfigurationError(
            "CsvSchema: each line must have the columns of the schema; there are no others to be "
            f"called '{name}'"
        )

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """An array is its only element."""
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Of the array column at this position."""
        self._delimiters[self._fields[index][0]] = ""
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Of all array columns so far."""
        for name, kind in self._fields:
            if pa.types.is_list(kind):
                self._delimiters[name] = separator
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        return self._told(delimiter=char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        return self._told(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        return self._told(escape=char)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Of lines that are written; any line break ends one that is read."""
        if not separator:
            raise ConfigurationError(
                "CsvSchema: without a line separator all records would be one line: give a line "
                "break"
            )
        return self._told(line_delimiter=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """The text of null, where it is not in quotes. Unless it is set, null is written as an
        empty field and not read."""
        return self._told(null_literal=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        return self._told(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        return self._told(quote=char)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        self._made = replace(self._made, skip_first_data_row=skip)
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """The header must have the schema's columns in their order."""
        self._made = replace(self._made, strict_headers=strict)
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """The first line holds the columns' names."""
        self._made = replace(self._made, use_header=use)
        return self

    def size(self) -> int:
        return len(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def build(self) -> CsvSchema:
        names = [name for name, _ in self._fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not names:
            what = f"two columns are called '{twice[0]}'" if twice else "there is no column"
            raise ConfigurationError(f"CsvSchema: {what}")
        schema = pa.schema(self._fields)
        check_types(schema, "CsvSchema")
        dialect = replace(
            self._made.dialect, array_delimiters=tuple(sorted(self._delimiters.items()))
        )
        return replace(self._made, schema=schema, dialect=dialect)

    def _add(self, name: str, kind: pa.DataType) -> CsvSchemaBuilder:
        self._fields.append((name, kind))
        return self

    def _told(self, **changes: Any) -> CsvSchemaBuilder:
        self._made = replace(self._made, dialect=replace(self._made.dialect, **changes))
        return self


def _arrow(given: Any, otherwise: pa.DataType) -> pa.DataType:
    """The Arrow type of what declares one."""
    if given is None:
        return otherwise
    found = given.arrow if isinstance(given, TypeInfo) else given
    if not isinstance(found, pa.DataType):
        raise ConfigurationError(
            f"CsvSchema: {given!r} is no column's type: give Types.INT(), or a pyarrow type"
        )
    return found
