"""What records become on their way into Kafka: encoders of keys and values.

An encoder makes a column of bytes of a batch. What it costs a record, measured on one core with
records of four short columns (64 bytes of JSON):

    RawEncoder     nothing: the column's bytes as they are
    StringEncoder  what Arrow takes to write a number as text, 20 to 70 ns
    JsonEncoder    190 ns, by polars, of a whole batch at once
    AvroEncoder    3,200 ns: fastavro encodes record by record, in Python
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ...api.types.type_info import schema_of
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import ConfigurationError, TypeMismatchError
from ...core.frames import frame_of
from .outgoing import as_bytes, is_bytes

_CONFLUENT_MAGIC: Final = b"\0"


class Encoder(ABC):
    """Makes keys or values. Picklable; used by one writer at a time."""

    @abstractmethod
    def encode(self, batch: Batch) -> pa.Array:
        """Of each record its bytes: an array of binary or text. Raises TypeMismatchError."""


class RawEncoder(Encoder):
    """Bytes and text as they are: of a column, or of records that are bytes or str themselves.

    column: None if records are no rows, or have one column only. A null stays null."""

    def __init__(self, column: str | None = None) -> None:
        self.column = column

    def __repr__(self) -> str:
        return f"RawEncoder({self.column!r})"

    def encode(self, batch: Batch) -> pa.Array:
        if isinstance(batch, ObjectBatch) and self.column is None:
            return _raw_objects(batch.values)
        return as_bytes(_column(batch, self.column, "RawEncoder"), "RawEncoder")


class StringEncoder(Encoder):
    """The text of each value of a column, or of each record that is a plain value, in UTF-8."""

    def __init__(self, column: str | None = None) -> None:
        self.column = column

    def __repr__(self) -> str:
        return f"StringEncoder({self.column!r})"

    def encode(self, batch: Batch) -> pa.Array:
        if isinstance(batch, ObjectBatch) and self.column is None:
            texts = [None if value is None else str(value) for value in batch.values]
            return pa.array(texts, pa.large_string())
        column = _column(batch, self.column, "StringEncoder")
        if is_bytes(column.type):
            return as_bytes(column, "StringEncoder")
        try:
            return column.cast(pa.large_string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TypeMismatchError(
                f"StringEncoder: a column of type {column.type} has no text: {error}. Use "
                "JsonEncoder() or AvroEncoder(schema)"
            ) from error


class JsonEncoder(Encoder):
    """A JSON object a record, with the columns' names.

    columns: which; None: all. type_info: a row type that records are turned into first, for
    records that are Python objects. Dates and times are text (`2024-01-31`,
    `2024-01-31 12:00:00.000`, with an offset where the type has a zone), decimals text, NaN and
    infinities null. Columns of bytes are refused: JSON has no form for them."""

    def __init__(self, columns: Sequence[str] | None = None, type_info: Any = None) -> None:
        self.columns = None if columns is None else tuple(columns)
        self.schema = schema_of(type_info)

    def __repr__(self) -> str:
        return f"JsonEncoder({'' if self.columns is None else list(self.columns)})"

    def encode(self, batch: Batch) -> pa.Array:
        import polars as pl

        typed = batch if self.schema is None else to_columns(batch, self.schema)
        data = columns_of(typed, self.columns, "JsonEncoder")
        for field in data.schema:
            if _holds(_is_wide, field.type):
                raise TypeMismatchError(
                    f"JsonEncoder: column '{field.name}' of type {field.type} cannot be written: "
                    "cast it to a decimal of up to 38 digits (decimal128), or to text"
                )
            if _holds(_is_bytes, field.type):
                raise TypeMismatchError(
                    f"JsonEncoder: column '{field.name}' of type {field.type} has no form in "
                    "JSON: leave it out with columns=[...], or make text of it first"
                )
        frame = frame_of(data)
        texts = frame.select(pl.struct(pl.all()).struct.json_encode()).to_series()
        return texts.to_arrow()


class AvroEncoder(Encoder):
    """An Avro record a record, without the schema in it (as Flink's `avro` format).

    schema: JSON text or what it means. schema_id: of a Confluent schema registry; the value is
        then preceded by it, as that registry's readers expect.
    """

    def __init__(self, schema: str | dict[str, Any], schema_id: int | None = None) -> None:
        try:
            self.schema: Any = json.loads(schema) if isinstance(schema, str) else schema
        except json.JSONDecodeError as error:
            raise ConfigurationError(f"AvroEncoder: the schema is no JSON: {error}") from error
        if not isinstance(self.schema, dict) or self.schema.get("type") != "record":
            raise ConfigurationError("AvroEncoder: the schema must be one of a record")
        self.schema_id = schema_id
        self._parsed: Any = None

    def __repr__(self) -> str:
        return f"AvroEncoder({self.schema.get('name')!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    def encode(self, batch: Batch) -> pa.Array:
        import fastavro

        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self.schema)
        names = [field["name"] for field in self.schema["fields"]]
        data = columns_of(batch, names, "AvroEncoder")
        head = b""
        if self.schema_id is not None:
            head = _CONFLUENT_MAGIC + self.schema_id.to_bytes(4, "big")
        made = []
        for row in data.to_pylist(maps_as_pydicts="strict"):
            out = io.BytesIO()
            out.write(head)
            try:
                fastavro.schemaless_writer(out, self._parsed, row)
            except Exception as error:
                raise TypeMismatchError(
                    f"AvroEncoder: a record does not fit the schema "
                    f"'{self.schema.get('name')}': {error or type(error).__name__}"
                ) from error
            made.append(out.getvalue())
        return pa.array(made, pa.large_binary())


def encoder(given: Encoder | str | None, what: str) -> Encoder | None:
    """What a sink was told: an encoder, or the name of a column of bytes or text."""
    if given is None or isinstance(given, Encoder):
        return given
    if isinstance(given, str):
        return RawEncoder(given)
    raise ConfigurationError(
        f"KafkaSink: {what} must be a column's name or an encoder (JsonEncoder(), "
        f"AvroEncoder(schema), StringEncoder(column), RawEncoder(column)), is {given!r}"
    )


def _raw_objects(values: list[Any]) -> pa.Array:
    for value in values:
        if value is not None and not isinstance(value, (bytes, bytearray, str)):
            raise TypeMismatchError(
                f"KafkaSink: a record is of type {type(value).__name__}, and only bytes and str go "
                "to Kafka as they are: give value=JsonEncoder() or another encoder"
            )
    return pa.array(values, pa.large_binary())


def columns_of(batch: Batch, names: Sequence[str] | None, who: str) -> pa.RecordBatch:
    """All columns, or those named. TypeMismatchError, naming `who` asks."""
    data = batch.data if isinstance(batch, ColumnBatch) else to_columns(batch).data
    if names is None:
        return data
    missing = [name for name in names if name not in data.schema.names]
    if missing:
        raise TypeMismatchError(
            f"{who}: there is no column '{missing[0]}'; the columns are {data.schema.names}"
        )
    return data.select(list(names))


def _column(batch: Batch, name: str | None, who: str) -> pa.Array:
    if name is None:
        data = columns_of(batch, None, who)
        if data.num_columns != 1:
            raise TypeMismatchError(
                f"{who}: records have the columns {data.schema.names}: say which one, or make an "
                "object of all of them with JsonEncoder()"
            )
        return data.column(0)
    return columns_of(batch, [name], who).column(0)


def column_of(batch: Batch, name: str, who: str) -> pa.Array:
    """A column by its name, also of records that are rows. TypeMismatchError, naming `who` asks."""
    return _column(batch, name, who)


def _holds(what: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Whether a column of this type has values of such a type in it."""
    if isinstance(kind, pa.BaseExtensionType):
        return _holds(what, kind.storage_type)
    if pa.types.is_nested(kind):
        return any(_holds(what, kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return _holds(what, kind.value_type)
    return what(kind)


def _is_wide(kind: pa.DataType) -> bool:
    """A decimal that the JSON writer ends the process at."""
    return bool(pa.types.is_decimal(kind) and not pa.types.is_decimal128(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or kind == pa.binary_view()
    )
