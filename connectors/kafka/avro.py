"""Avro in messages, by fastavro: decoding of single records, with or without a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from ...core.errors import ConfigurationError, ConnectorError
from ..avro_types import parsed, with_plain_uuids

_MAGIC: Final = 0
"""First byte of a value in the wire format of Confluent's registry."""

_HEADER: Final = 5

_UNKNOWN: Final = 40403
"""A registry's word for "no such schema"; a 404 without it says that this is no registry."""


def decoder(schema: Any, registry: Mapping[str, Any] | None) -> Callable[[bytes], Any]:
    """Makes a dict of a value, or raises, saying why it cannot."""
    return _decoder(json.dumps(schema) if not isinstance(schema, str) else schema, _key(registry))


def _key(registry: Mapping[str, Any] | None) -> str | None:
    return None if registry is None else json.dumps(dict(registry), sort_keys=True)


@lru_cache(maxsize=16)
def _decoder(schema: str, registry: str | None) -> Callable[[bytes], Any]:
    reader = parsed(schema)

    def plain(value: bytes) -> Any:
        return _read(io.BytesIO(value), reader, None)

    if registry is None:
        return plain
    writers = _Writers(json.loads(registry))

    def registered(value: bytes) -> Any:
        if len(value) < _HEADER or value[0] != _MAGIC:
            raise ValueError("the value does not begin with a schema's id")
        stream = io.BytesIO(value[_HEADER:])
        writer = writers.schema(int.from_bytes(value[1:_HEADER], "big"))
        return _read(stream, writer, reader)

    return registered


def _read(stream: io.BytesIO, writer: Any, reader: Any) -> Any:
    import fastavro

    record = fastavro.schemaless_reader(stream, writer, reader)
    if stream.read(1):
        raise ValueError("there is more behind the record")
    return record


def _without_user(url: str) -> str:
    """As it may be shown: its user and password left out."""
    scheme, found, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{found}{host.rpartition('@')[2]}{slash}{path}"


class _Writers:
    """Schemas of a registry by id, each asked for once."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        try:
            from confluent_kafka import schema_registry
        except ImportError as error:
            raise ConfigurationError(
                f"a schema registry needs more packages: pip install 'strom[kafka]' ({error})"
            ) from error
        self._url = _without_user(str(properties.get("url")))
        self._client: Any = schema_registry.SchemaRegistryClient(dict(properties))
        self._refused: Any = schema_registry.SchemaRegistryError
        self._known: dict[int, Any] = {}

    def schema(self, number: int) -> Any:
        """ValueError if the registry knows no such schema: then the record is malformed.
        ConnectorError if it cannot be asked: that says nothing about the record."""
        found = self._known.get(number)
        if found is None:
            import fastavro

            text = self._text(number)
            found = fastavro.parse_schema(with_plain_uuids(json.loads(text)))
            self._known[number] = found
        return found

    def _text(self, number: int) -> str:
        try:
            return str(self._client.get_schema(number).schema_str)
        except self._refused as error:
            if error.error_code == _UNKNOWN:
                raise ValueError(f"the schema registry has no schema {number}") from None
            why = f"{error.error_message} ({error.http_status_code})"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        raise ConnectorError(
            f"the schema registry at {self._url} cannot be asked for schema {number}: {why}"
        )
