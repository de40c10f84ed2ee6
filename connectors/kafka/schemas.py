"""PyFlink's schemas: what a `KafkaSource` makes of values, and a `KafkaSink` of records, in
PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...core.batch import Batch, ObjectBatch
from ...core.checks import known_charset
from ...core.errors import ConfigurationError, TypeMismatchError
from .formats import AvroFormat, BytesFormat, Format, JsonFormat, StringFormat
from .serialization import AvroEncoder, Encoder, JsonEncoder, RawEncoder, columns_of


@dataclass(frozen=True)
class DeserializationSchema:
    """A format, whether records are the values of its only column (objects, as in PyFlink), and
    whether malformed values are skipped."""

    format: Format
    objects: bool = False
    skips_malformed: bool = False


class SerializationSchema:
    """An encoder under PyFlink's name."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def encoder(self) -> Encoder:
        return self._encoder


class SimpleStringSchema(DeserializationSchema, SerializationSchema):
    """Records are str. Text in another charset than UTF-8 is decoded value by value."""

    def __init__(self, charset: str = "UTF-8") -> None:
        name = known_charset(charset)
        super().__init__(StringFormat(charset=name), objects=True)

    @property
    def encoder(self) -> Encoder:
        assert isinstance(self.format, StringFormat)
        charset = self.format.charset
        return RawEncoder() if charset == "utf-8" else CharsetEncoder(charset)


class ByteArraySchema(DeserializationSchema, SerializationSchema):
    """Records are bytes."""

    def __init__(self) -> None:
        super().__init__(BytesFormat(), objects=True)

    @property
    def encoder(self) -> Encoder:
        return RawEncoder()


class CharsetEncoder(Encoder):
    """Records that are str, in another charset than UTF-8, value by value."""

    def __init__(self, charset: str) -> None:
        self.charset = charset

    def __repr__(self) -> str:
        return f"CharsetEncoder({self.charset!r})"

    def encode(self, batch: Batch) -> pa.Array:
        texts = RawEncoder().encode(batch)
        try:
            made = [
                None if text is None else text.decode().encode(self.charset)
                for text in texts.cast(pa.large_binary()).to_pylist()
            ]
        except UnicodeError as error:
            raise TypeMismatchError(
                f"SimpleStringSchema: a record cannot be written in {self.charset}: {error}"
            ) from error
        return pa.array(made, pa.large_binary())


class RowFieldExtractorSchema(SerializationSchema):
    """Of rows the field at a position, which holds bytes or text."""

    def __init__(self, field_index: int) -> None:
        if not isinstance(field_index, int) or isinstance(field_index, bool) or field_index < 0:
            raise ConfigurationError(
                f"RowFieldExtractorSchema: field_index counts from 0, is {field_index!r}"
            )
        super().__init__(_FieldEncoder(field_index))


class _FieldEncoder(Encoder):
    def __init__(self, index: int) -> None:
        self._index = index

    def encode(self, batch: Batch) -> pa.Array:
        if isinstance(batch, ObjectBatch) and all(isinstance(v, tuple) for v in batch.values):
            if any(len(value) <= self._index for value in batch.values):
                raise self._missing("a record with fewer fields")
            return RawEncoder().encode(ObjectBatch([value[self._index] for value in batch.values]))
        names = columns_of(batch, None, "RowFieldExtractorSchema").schema.names
        if len(names) <= self._index:
            raise self._missing(f"the columns {names}")
        return RawEncoder(names[self._index]).encode(batch)

    def _missing(self, found: str) -> TypeMismatchError:
        return TypeMismatchError(
            f"RowFieldExtractorSchema: there is no field {self._index} in {found}; fields are "
            "counted from 0"
        )


class JsonRowDeserializationSchema(DeserializationSchema):
    """Records are rows with the columns of the type given."""

    class Builder:
        """`JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(...)).build()`."""

        def __init__(self) -> None:
            self._type: Any = None
            self._skips = False

        def type_info(self, type_info: Any) -> JsonRowDeserializationSchema.Builder:
            """The columns' names and types."""
            self._type = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Not there: always raises ConfigurationError."""
            raise ConfigurationError(
                "JsonRowDeserializationSchema: a JSON schema is not read; give the columns with "
                "type_info(Types.ROW_NAMED(names, types))"
            )

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Not there: always raises ConfigurationError."""
            raise ConfigurationError(
                "JsonRowDeserializationSchema: a field that is missing is null, and cannot be an "
                "error; filter for null behind the source"
            )

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Malformed values are skipped, and counted in the metric `malformed_records`."""
            self._skips = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            if self._type is None:
                raise ConfigurationError("JsonRowDeserializationSchema needs type_info(...)")
            return JsonRowDeserializationSchema(JsonFormat(self._type), skips_malformed=self._skips)

    @staticmethod
    def builder() -> Builder:
        return JsonRowDeserializationSchema.Builder()


class JsonRowSerializationSchema(SerializationSchema):
    """Rows as JSON objects."""

    class Builder:
        """`JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(...)).build()`."""

        def __init__(self) -> None:
            self._type: Any = None

        def with_type_info(self, type_info: Any) -> JsonRowSerializationSchema.Builder:
            """The columns' names and types."""
            self._type = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            if self._type is None:
                raise ConfigurationError("JsonRowSerializationSchema needs with_type_info(...)")
            return JsonRowSerializationSchema(self._type)

    @staticmethod
    def builder() -> Builder:
        return JsonRowSerializationSchema.Builder()

    def __init__(self, type_info: Any) -> None:
        super().__init__(JsonEncoder(type_info=type_info))
        self.type_info = type_info


class AvroRowDeserializationSchema(DeserializationSchema):
    """Records are rows with the columns of an Avro record schema, given as JSON text."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        super().__init__(AvroFormat(_avro_schema(record_class, avro_schema_string)))


class AvroRowSerializationSchema(SerializationSchema):
    """Rows as Avro records of a schema, given as JSON text."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        super().__init__(AvroEncoder(_avro_schema(record_class, avro_schema_string)))


def _avro_schema(record_class: str | None, avro_schema_string: str | None) -> str:
    """A first argument that is a schema is taken for one."""
    if avro_schema_string is not None:
        return avro_schema_string
    if isinstance(record_class, str) and record_class.lstrip().startswith("{"):
        return record_class
    raise ConfigurationError(
        "an Avro schema must be given as JSON text, with avro_schema_string=...; classes of Java "
        f"({record_class!r}) are not there"
    )
