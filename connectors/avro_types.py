"""Columns of Avro's types: what a schema of records comes to, in files and in messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from ..core.errors import ConfigurationError

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}

_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""Those that fastavro knows; any other is no more than its type, as the specification has it."""

_DIGITS: Final = 76
"""The most that a decimal column holds."""


def parsed(schema: Any) -> Any:
    """A schema given as JSON text, or parsed already. ConfigurationError if it is none."""
    try:
        import fastavro
    except ImportError as error:
        raise ConfigurationError(
            f"Avro needs fastavro: pip install 'strom[kafka]' ({error})"
        ) from error
    try:
        found = json.loads(schema) if isinstance(schema, str) else schema
        made = fastavro.parse_schema(with_plain_uuids(found))
    except Exception as error:
        raise ConfigurationError(f"this is no Avro schema: {error}") from error
    if not isinstance(made, dict) or made.get("type") != "record":
        raise ConfigurationError("an Avro schema for a stream must be of a record")
    return made


def with_plain_uuids(schema: Any) -> Any:
    """UUIDs as the texts, or bytes, that they are in the data: fastavro makes objects of the texts,
    which no column takes."""
    match schema:
        case dict():
            return {
                key: with_plain_uuids(value)
                for key, value in schema.items()
                if (key, value) != ("logicalType", "uuid")
            }
        case list():
            return [with_plain_uuids(each) for each in schema]
    return schema


def arrow_schema(schema: Any) -> pa.Schema:
    """The columns of a parsed record schema. ConfigurationError for what has no column type."""
    return pa.schema(_fields(schema, {}, ()))


def _fields(record: Any, named: dict[str, Any], within: tuple[str, ...]) -> list[pa.Field]:
    """`named`: schemas seen so far, by their names. `within`: the records that this one is in."""
    name = record["name"]
    if name in within:
        raise ConfigurationError(f"the Avro record '{name}' contains itself")
    named[name] = record
    here = (*within, name)
    return [pa.field(each["name"], _type(each["type"], named, here)) for each in record["fields"]]


def _type(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ConfigurationError(
                f"an Avro union of several types has no column type: {schema}; decode it with "
                "BytesFormat and a function of your own"
            )
        return _type(kinds[0], named, within)
    if isinstance(schema, str):
        return _PLAIN[schema] if schema in _PLAIN else _type(named[schema], named, within)
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("fixed", "enum"):
        named[schema["name"]] = schema
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema["precision"], schema.get("scale", 0))
    match kind:
        case "record":
            return pa.struct(_fields(schema, named, within))
        case "array":
            return pa.list_(_type(schema["items"], named, within))
        case "map":
            return pa.map_(pa.string(), _type(schema["values"], named, within))
        case "fixed":
            return pa.binary(schema["size"])
        case "enum":
            return pa.string()
        case str() if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
    return _type(kind, named, within)


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision > _DIGITS:
        raise ConfigurationError(
            f"an Avro decimal of {precision} digits has no column type: {_DIGITS} are the most; "
            "decode it with BytesFormat and a function of your own"
        )
    return pa.decimal256(precision, scale) if precision > 38 else pa.decimal128(precision, scale)
