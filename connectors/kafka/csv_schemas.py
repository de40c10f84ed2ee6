"""PyFlink's CSV schemas: lines of CSV as rows, and rows as lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from ...core.errors import ConfigurationError
from ..csv_text import CsvDialect
from .csv_format import CsvEncoder, CsvFormat
from .schemas import DeserializationSchema, SerializationSchema

Made = TypeVar("Made", bound="_Builder")


class _Builder:
    """What both builders can be told."""

    def __init__(self, type_info: Any) -> None:
        """type_info: the columns' names and types, in the order of the fields."""
        if type_info is None:
            raise ConfigurationError("a CSV schema needs the columns' names and types, is None")
        self._type = type_info
        self._dialect = CsvDialect()

    def set_field_delimiter(self: Made, delimiter: str) -> Made:
        """Between fields; a comma by default."""
        return self._with(delimiter=delimiter)

    def set_array_element_delimiter(self: Made, delimiter: str) -> Made:
        """Between the elements of an array; a semicolon by default."""
        return self._with(array_delimiter=delimiter)

    def set_quote_character(self: Made, c: str) -> Made:
        """Around fields that hold a delimiter; a double quote by default."""
        return self._with(quote=c)

    def set_escape_character(self: Made, c: str) -> Made:
        """Before a character that is meant as it is; none by default."""
        return self._with(escape=c)

    def set_null_literal(self: Made, null_literal: str) -> Made:
        """The text of null, where it is not in quotes."""
        return self._with(null_literal=null_literal, null_by_default=False)

    def _with(self: Made, **changes: Any) -> Made:
        self._dialect = replace(self._dialect, **changes)
        return self


class CsvRowDeserializationSchema(DeserializationSchema):
    """Records are rows of one line of CSV each. Made by `Builder`."""

    class Builder(_Builder):
        """`CsvRowDeserializationSchema.Builder(Types.ROW_NAMED(...)).build()`."""

        def __init__(self, type_info: Any) -> None:
            super().__init__(type_info)
            self._skips = False

        def set_allow_comments(
            self, allow_comments: bool = True
        ) -> CsvRowDeserializationSchema.Builder:
            """Lines that begin with # are none."""
            return self._with(comments=allow_comments)

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool = True
        ) -> CsvRowDeserializationSchema.Builder:
            """Malformed values are skipped, and counted in the metric `malformed_records`."""
            self._skips = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            form = CsvFormat(self._type, self._dialect)
            return CsvRowDeserializationSchema(form, skips_malformed=self._skips)


class CsvRowSerializationSchema(SerializationSchema):
    """Rows as lines of CSV, each with the line delimiter at its end. Made by `Builder`."""

    class Builder(_Builder):
        """`CsvRowSerializationSchema.Builder(Types.ROW_NAMED(...)).build()`. As in Flink nulls are
        empty fields unless there is a null literal, which reads them again."""

        def __init__(self, type_info: Any) -> None:
            super().__init__(type_info)
            self._dialect = self._dialect.with_nulls()

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """A line break, or empty; a newline by default."""
            return self._with(line_delimiter=delimiter)

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """A text that would need quotes is an error then, unless there is an escape
            character."""
            return self._with(quote=None)

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(
                CsvEncoder(type_info=self._type, dialect=self._dialect)
            )
