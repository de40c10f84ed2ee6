"""Records as lines of CSV, and lines as columns, a batch at a time: what Kafka's and the files'
formats share.

Arrow parses. It has no arrays in a field and no comments: arrays are split behind it, comments are
taken out ahead. Lines are made of columns by Arrow's kernels for text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ..core.arrow_values import to_array
from ..core.errors import ConfigurationError, TypeMismatchError
from ..core.value_types import BigDecimal, BigInteger, as_stored

_types = pa.types

_PLAIN = frozenset(",;|\t\"'\\")
"""Characters that are in the text of no number, date or time."""


@dataclass(frozen=True)
class CsvDialect:
    """How fields are told apart. quote None: no field is quoted. escape: before a character that is
    meant as it is. null_literal: the text of null, unless it is in quotes; None: there is no null.
    null_by_default: nobody has chosen it, and what reads the lines may know of no null.
    array_delimiter: between the elements of an array; array_delimiters: of single columns.
    comments: lines that begin with # are none. line_delimiter: behind each record that is written.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None
    array_delimiter: str = ";"
    array_delimiters: tuple[tuple[str, str], ...] = ()
    comments: bool = False
    line_delimiter: str = "\n"
    null_by_default: bool = False

    def __post_init__(self) -> None:
        named = {
            "field delimiter": self.delimiter,
            "quote character": self.quote,
            "escape character": self.escape,
        }
        for name, value in named.items():
            if value is not None and not _is_character(value):
                raise ConfigurationError(
                    f"CSV: the {name} must be one ASCII character and no line break, is {value!r}"
                )
        used = [value for value in named.values() if value is not None]
        if len(set(used)) < len(used):
            raise ConfigurationError(f"CSV: two of {named} are the same character")
        if self.line_delimiter not in ("\n", "\r", "\r\n", ""):
            raise ConfigurationError(
                f"CSV: the line delimiter must be a line break or empty, is {self.line_delimiter!r}"
            )

    def parse_options(self, empty_lines: bool) -> pacsv.ParseOptions:
        """empty_lines: whether an empty line is a record."""
        return pacsv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote if self.quote is not None else False,
            escape_char=self.escape if self.escape is not None else False,
            newlines_in_values=True,
            ignore_empty_lines=not empty_lines,
        )

    def with_nulls(self) -> CsvDialect:
        """The dialect to write nulls with: as empty fields, unless there is a null literal."""
        if self.null_literal is not None:
            return self
        return replace(self, null_literal="", null_by_default=True)

    def convert_options(self, schema: pa.Schema, **more: Any) -> pacsv.ConvertOptions:
        """Only the null literal is null, and not in quotes: those make a text of it."""
        nulls = [] if self.null_literal is None else [self.null_literal]
        return pacsv.ConvertOptions(
            column_types=parsed(schema),
            null_values=nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            **more,
        )

    @property
    def special(self) -> list[str]:
        """Characters that mean something within a line."""
        return [c for c in (self.delimiter, self.quote, self.escape) if c is not None]

    def array_delimiter_of(self, column: str) -> str:
        return dict(self.array_delimiters).get(column, self.array_delimiter)


def check_types(schema: pa.Schema, who: str) -> None:
    """ConfigurationError for a column whose values have no text in CSV."""
    for field in schema:
        kind = field.type.value_type if _types.is_list(field.type) else field.type
        if not _is_scalar(kind):
            raise ConfigurationError(
                f"{who}: column '{field.name}' of type {field.type} has no form in CSV: take text, "
                "numbers, booleans, dates, times or arrays of these"
            )


def parsed(schema: pa.Schema) -> pa.Schema:
    """What the parser makes of the columns: of arrays, and of numbers of any length, text."""
    kinds = [pa.string() if _is_read_as_text(field.type) else field.type for field in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def _is_read_as_text(kind: pa.DataType) -> bool:
    return _types.is_list(kind) or _is_big(kind)


def _is_big(kind: pa.DataType) -> bool:
    """BIG_DEC and BIG_INT."""
    return isinstance(kind, (BigDecimal, BigInteger))


def converted(data: pa.RecordBatch, schema: pa.Schema, dialect: CsvDialect) -> pa.RecordBatch:
    """With arrays split, and numbers of any length read. Raises ArrowInvalid for elements of
    another type."""
    if not any(_is_read_as_text(field.type) for field in schema):
        return data
    columns = []
    for field in schema:
        column = data.column(field.name)
        if _types.is_list(field.type):
            column = _split(column, dialect.array_delimiter_of(field.name), dialect.null_literal)
            column = column.cast(field.type)
        elif _is_big(field.type):
            column = _big(column, field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _big(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals, or whole numbers, of any length. Raises ArrowInvalid for other texts."""
    try:
        values = [None if text is None else Decimal(text) for text in texts.to_pylist()]
        return to_array(values, kind)
    except (InvalidOperation, TypeMismatchError) as error:
        raise pa.ArrowInvalid(f"no {kind}: {error}") from error


_IN_ONE_PIECE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def lines(data: pa.RecordBatch, dialect: CsvDialect, who: str) -> pa.Array:
    """Of each record its line, with what ends it. TypeMismatchError, naming `who` writes, for what
    the dialect has no form for."""
    if any(_is_big(kind) for kind in data.schema.types):
        data = as_stored(data)
    data = without_views(data)
    fields = [
        _texts(name, column, dialect, who)
        for name, column in zip(data.schema.names, data.columns, strict=True)
    ]
    joined = pc.binary_join_element_wise(*fields, pa.scalar(dialect.delimiter, pa.large_string()))
    if not dialect.line_delimiter:
        return joined
    end = pa.scalar(dialect.line_delimiter, pa.large_string())
    return pc.binary_join_element_wise(joined, end, pa.scalar("", pa.large_string()))


def without_views(data: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with texts and bytes in one piece instead of views, of which Arrow writes no CSV;
    as it is, if there are none."""
    kinds = [_IN_ONE_PIECE.get(kind, kind) for kind in data.schema.types]
    if kinds == data.schema.types:
        return data
    pairs = zip(data.columns, kinds, strict=True)
    columns = [column if column.type == kind else column.cast(kind) for column, kind in pairs]
    return pa.RecordBatch.from_arrays(columns, names=data.schema.names)


def header(names: list[str], dialect: CsvDialect, who: str) -> str:
    """The line of the columns' names."""
    batch = pa.RecordBatch.from_arrays([pa.array([name]) for name in names], names=names)
    return str(lines(batch, dialect, who)[0].as_py())


def _is_character(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isascii() and value not in "\r\n"


def _is_text(kind: pa.DataType) -> bool:
    if _types.is_list(kind) or _types.is_dictionary(kind):
        return True
    return bool(_types.is_string(kind) or _types.is_large_string(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    return bool(
        _types.is_boolean(kind)
        or _types.is_integer(kind)
        or _types.is_float32(kind)
        or _types.is_float64(kind)
        or _types.is_string(kind)
        or _types.is_large_string(kind)
        or _types.is_decimal(kind)
        or _types.is_date(kind)
        or _types.is_time(kind)
        or _types.is_timestamp(kind)
        or _types.is_null(kind)
        or _is_big(kind)
    )


def _split(column: Any, delimiter: str, null_literal: str | None) -> Any:
    """Lists of texts. An empty text is a list without elements."""
    if not delimiter:
        split = pc.split_pattern(column, "\0")
    else:
        split = pc.split_pattern(column, delimiter)
    empty = pc.fill_null(pc.equal(column, ""), False)
    values = split.flatten()
    if null_literal is not None:
        values = pc.if_else(pc.equal(values, null_literal), pa.scalar(None, pa.string()), values)
    kept = pc.invert(pc.take(empty, pc.list_parent_indices(split)))
    lengths = pc.if_else(empty, 0, pc.fill_null(pc.list_value_length(split), 0))
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, values.filter(kept), mask=column.is_null())


def _texts(name: str, column: Any, dialect: CsvDialect, who: str) -> Any:
    """A column's fields as they are written."""
    if _types.is_list(column.type):
        texts = _array_texts(name, column, dialect, who)
    else:
        texts = _plain_texts(name, column, who)
    null = dialect.null_literal
    like_null = None if null is None else pc.equal(texts, null)
    if _is_text(column.type) or not _PLAIN.issuperset(dialect.special):
        texts = _quoted(name, texts, dialect, who)
    if like_null is not None and pc.any(like_null).as_py():
        texts = pc.if_else(like_null, _in_quotes(name, texts, dialect, who), texts)
    if not column.null_count:
        return texts
    if null is None:
        raise TypeMismatchError(
            f"{who}: column '{name}' holds a null, which CSV has no form for without a null "
            "literal: set one"
        )
    if _is_special(null, dialect):
        raise TypeMismatchError(
            f"{who}: column '{name}' holds a null, but the null literal {null!r} has a delimiter, "
            "quote or escape character in it and would be read as a text: set another one"
        )
    return pc.fill_null(texts, null)


def _in_quotes(name: str, texts: Any, dialect: CsvDialect, who: str) -> Any:
    """Texts that are the null literal, so that they are not read as null."""
    null = dialect.null_literal
    if null is None or _is_special(null, dialect):
        return texts  # those are in quotes, or escaped
    if dialect.quote is None and dialect.null_by_default:
        return texts
    if dialect.quote is None:
        raise TypeMismatchError(
            f"{who}: column '{name}' holds {null!r}, which is the null literal and would be read "
            "as null, for there is no quote character: set one, or another null literal"
        )
    return _between(texts, dialect.quote)


def _between(texts: Any, quote: str) -> Any:
    mark = pa.scalar(quote, pa.large_string())
    return pc.binary_join_element_wise(mark, texts, mark, pa.scalar("", pa.large_string()))


def _is_special(text: str, dialect: CsvDialect) -> bool:
    return any(character in text for character in [*dialect.special, "\r", "\n"])


def _plain_texts(name: str, column: Any, who: str) -> Any:
    if _types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_scalar(column.type):
        raise TypeMismatchError(
            f"{who}: column '{name}' of type {column.type} has no form in CSV: leave it out, or "
            "make text of it first"
        )
    return column.cast(pa.large_string())


def _array_texts(name: str, column: Any, dialect: CsvDialect, who: str) -> Any:
    delimiter = dialect.array_delimiter_of(name)
    values = _plain_texts(name, column.flatten(), who)
    null = dialect.null_literal
    if null is not None and not dialect.null_by_default and pc.any(pc.equal(values, null)).as_py():
        raise TypeMismatchError(
            f"{who}: an array of column '{name}' holds {null!r}, which is the null literal and "
            "would be read as null: set another one"
        )
    if values.null_count:
        if null is None:
            raise TypeMismatchError(
                f"{who}: an array of column '{name}' holds a null, which CSV has no form for "
                "without a null literal: set one"
            )
        values = pc.fill_null(values, null)
    many = pc.any(pc.greater(pc.list_value_length(column), 1)).as_py()
    if (not delimiter and many) or _any_has(values, [delimiter]):
        raise TypeMismatchError(
            f"{who}: an array of column '{name}' cannot be told apart by the array delimiter "
            f"{delimiter!r}: set another one"
        )
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    lists = pa.LargeListArray.from_arrays(offsets, values, mask=column.is_null())
    texts = pc.binary_join(lists, pa.scalar(delimiter, pa.large_string()))
    if pc.any(pc.and_(pc.equal(texts, ""), pc.greater(pc.list_value_length(column), 0))).as_py():
        raise TypeMismatchError(
            f"{who}: an array of column '{name}' holds one empty text and nothing else, which "
            "would be read as an array without elements: filter it out, or make text of it first"
        )
    return texts


def _quoted(name: str, texts: Any, dialect: CsvDialect, who: str) -> Any:
    """Fields whose text could be taken for something else are quoted or escaped."""
    quote, escape, delimiter = dialect.quote, dialect.escape, dialect.delimiter
    special = [*dialect.special, "\r", "\n", *("#" if dialect.comments else "")]
    if not _any_has(texts, special):
        return texts
    found = texts
    if escape is not None:
        texts = pc.replace_substring(texts, escape, escape + escape)
    if quote is not None:
        inner = pc.replace_substring(texts, quote, (escape or quote) + quote)
        return pc.if_else(_has(found, special), _between(inner, quote), texts)
    if _any_has(found, ["\r", "\n", *(delimiter if escape is None else "")]):
        raise TypeMismatchError(
            f"{who}: a text of column '{name}' holds a delimiter, which CSV without a quote "
            "character has no form for: set one"
        )
    return texts if escape is None else pc.replace_substring(texts, delimiter, escape + delimiter)


def _has(texts: Any, characters: list[str]) -> Any:
    found = pc.match_substring(texts, characters[0])
    for character in characters[1:]:
        found = pc.or_(found, pc.match_substring(texts, character))
    return found


def _any_has(texts: Any, characters: list[str]) -> bool:
    wanted = [character for character in characters if character]
    return bool(wanted) and pc.any(_has(texts, wanted)).as_py() is True
