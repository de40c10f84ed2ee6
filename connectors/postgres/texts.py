"""Values in PostgreSQL's own text, a column at a time: how it sends them, and how it takes them.

Text, not the binary format: it is the only one of logical replication that all servers speak, both
ways are then one, and Arrow parses and prints it without a step in Python per value (arrays, bytes
and nested values aside). Sessions have the settings of `connection.SESSION`, so that the text of a
value is always the same, and exact.

    Arrow                             PostgreSQL
    bool, int16/32/64, float, double  boolean, smallint, integer, bigint, real, double precision
    int8, uint8/16/32/64       ->     whatever number holds the value
    decimal128/256(p, s)              numeric(p, s); numeric without precision is read as string
    string                            text, varchar, uuid, json, jsonb, enums, and all others
    binary                            bytea
    date32, time64[us]                date, time
    timestamp[us], with UTC           timestamp, timestamp with time zone
    list                              one-dimensional array
    struct, map                ->     json, jsonb
    duration                   ->     interval
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from ...core.errors import TypeMismatchError

_LARGE: Final = pa.large_string()

_UNREPRESENTABLE: Final = "Arrow's type has no infinity, NaN, year before 1 or after 9999, or 24:00"


TO_CSV: Final = "TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
"""The end of a COPY for `from_csv`. Quotes tell empty texts from nulls, and keep the first value's
beginning from being taken for a byte order mark."""


# --- PostgreSQL's text to Arrow -------------------------------------------------------------------


def from_text(texts: pa.Array, want: pa.DataType, name: str) -> pa.Array:
    """A column of type `want` from texts (string). Raises TypeMismatchError naming the column and
    the first value that has no place in it."""
    try:
        return _parse(texts, want)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise TypeMismatchError(
            f"column '{name}': value {_first_bad(texts, want)!r} does not fit {want} "
            f"({_UNREPRESENTABLE}): leave the row or column out, or change its type to text"
        ) from error


def from_csv(data: bytes, width: int) -> list[pa.Array]:
    """What a COPY `TO_CSV` sent, as `width` columns of texts (string)."""
    if not data:
        return [pa.array([], pa.string()) for _ in range(width)]
    names = [str(at) for at in range(width)]
    table = csv.read_csv(
        pa.py_buffer(data),
        read_options=csv.ReadOptions(column_names=names, block_size=len(data) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return [pa.concat_arrays(column.chunks) for column in table.columns]


def typed(texts: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """`from_text` of each column."""
    arrays = [
        from_text(column, field.type, field.name)
        for column, field in zip(texts, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parse(texts: pa.Array, want: pa.DataType) -> pa.Array:
    types = pa.types
    if want.equals(texts.type):
        return texts
    if types.is_boolean(want):
        return pc.starts_with(texts, "t")
    if types.is_time(want):
        dated = pc.binary_join_element_wise(pa.scalar("1970-01-01"), texts, " ")
        return dated.cast(pa.timestamp(want.unit)).cast(want)
    if types.is_binary(want):
        return pa.array([_bytes(text) for text in texts.to_pylist()], want)
    if types.is_list(want):
        return _parse_lists(texts, want)
    return texts.cast(want)


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith("\\x"):
        raise ValueError(text)
    return bytes.fromhex(text[2:])


def _parse_lists(texts: pa.Array, want: pa.DataType) -> pa.Array:
    rows = [None if text is None else parse_array(text) for text in texts.to_pylist()]
    offsets, values = [0], list[str | None]()
    for row in rows:
        values.extend(row or ())
        offsets.append(len(values))
    items = _parse(pa.array(values, pa.string()), want.value_type)
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=want, mask=mask)


def parse_array(text: str) -> list[str | None]:
    """The elements of PostgreSQL's text of a one-dimensional array. Raises ValueError for others.

    >>> parse_array('{1,NULL,"a \\\\"b\\\\" {c}"}')
    ['1', None, 'a "b" {c}']
    """
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError(f"no array of one dimension from 1 on: {text}")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise ValueError(f"no array of one dimension: {text}")
        if text[at] == '"':
            piece, at = _quoted(text, at + 1)
            found.append(piece)
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            plain = text[at:stop]
            found.append(None if plain == "NULL" else plain)
            at = stop
        at += 1
    return found


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The element that a quote opens before `at`, and where its closing quote's successor is."""
    pieces = []
    while True:
        char = text[at]
        if char == "\\":
            pieces.append(text[at + 1])
            at += 2
        elif char == '"':
            return "".join(pieces), at + 1
        else:
            stop = min(p for p in (text.find('"', at), text.find("\\", at)) if p >= 0)
            pieces.append(text[at:stop])
            at = stop


def _first_bad(texts: pa.Array, want: pa.DataType) -> str | None:
    for at in range(len(texts)):
        try:
            _parse(texts.slice(at, 1), want)
        except (pa.ArrowException, ValueError, OverflowError):
            return str(texts[at].as_py())
    return None


# --- Arrow to PostgreSQL's text -------------------------------------------------------------------


def to_text(column: pa.Array, name: str) -> pa.Array:
    """The column's values as texts (large_string), nulls as nulls. Raises TypeMismatchError for
    types that have no text, and for nanoseconds that microseconds would cut."""
    try:
        return _show(column)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TypeMismatchError(
            f"column '{name}' of type {column.type} cannot be written to PostgreSQL: {error}"
        ) from error


def to_copy(columns: Sequence[pa.Array], rows: int) -> pa.Buffer:
    """Texts as `COPY ... FROM STDIN` takes them: rows in lines, columns apart by tabs."""
    if not rows:
        return pa.py_buffer(b"")
    escaped = [_escaped(column) for column in columns]
    joined = pc.binary_join_element_wise(
        *escaped,
        pa.scalar("\t", _LARGE),
        null_handling="replace",
        null_replacement="\\N",
    )
    lines = pc.binary_join_element_wise(joined, pa.scalar("", _LARGE), pa.scalar("\n", _LARGE))
    _, offsets, data = lines.buffers()
    last = pa.Array.from_buffers(pa.int64(), rows + 1, [None, offsets], offset=lines.offset)
    start, stop = last[0].as_py(), last[rows].as_py()
    return data.slice(start, stop - start)


def _escaped(texts: pa.Array) -> pa.Array:
    for char, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        texts = pc.replace_substring(texts, char, escape)
    return texts


def _show(column: pa.Array) -> pa.Array:
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return _show(column.dictionary_decode())
    if isinstance(column, pa.ExtensionArray):
        return _show(column.storage)
    if types.is_null(kind):
        return column.cast(_LARGE)
    if types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz and "UTC")).cast(_LARGE)
    if types.is_time(kind):
        return column.cast(pa.time64("us")).cast(_LARGE)
    if types.is_date(kind):
        return column.cast(pa.date32()).cast(_LARGE)
    if kind.equals(pa.float16()):
        return column.cast(pa.float32()).cast(_LARGE)
    made = _by_value(kind)
    if made is not None:
        return pa.array([None if v is None else made(v) for v in column.to_pylist()], _LARGE)
    return column.cast(_LARGE)


def _by_value(kind: pa.DataType) -> Callable[[Any], str] | None:
    """How Python shows a value, for types of which Arrow cannot."""
    types = pa.types
    views = (pa.binary(), pa.large_binary(), pa.binary_view())
    if kind in views or types.is_fixed_size_binary(kind):
        return lambda value: "\\x" + value.hex()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return lambda value: _array(value, kind.value_type)
    if types.is_duration(kind):
        return _interval
    if types.is_struct(kind) or types.is_map(kind):
        return lambda value: json.dumps(_plain(value, kind), allow_nan=False)
    return None


def _interval(value: Any) -> str:
    if getattr(value, "nanoseconds", 0):
        raise ValueError(f"{value} has nanoseconds, which PostgreSQL does not hold")
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return f"{micros} microseconds"


def _array(values: list[Any], kind: pa.DataType) -> str:
    shown = _show(pa.array(values, kind)).to_pylist()
    return "{" + ",".join("NULL" if one is None else _element(one) for one in shown) + "}"


def _element(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _plain(value: Any, kind: pa.DataType) -> Any:
    """As JSON has it."""
    if isinstance(value, dict):
        return {str(k): _plain(v, kind) for k, v in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):  # a map
            return {str(k): _plain(v, kind) for k, v in value}
        return [_plain(v, kind) for v in value]
    if isinstance(value, bytes):
        raise ValueError("JSON has no bytes")
    if isinstance(value, Decimal):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat()
