"""How values and keys of records become columns, a batch at a time.

    bytes (one binary array a batch) --decode--> columns, and which records are malformed

A malformed record fails the job, or goes to a side output whole, as the user says (`malformed` of
the source); no record is dropped, and no other record suffers for it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pajson

from ...api.types.type_info import schema_of
from ...core.checks import known_charset
from ...core.errors import ConfigurationError, ConnectorError
from ...core.value_types import empty_batch
from ..avro_types import arrow_schema, parsed
from ..json_numbers import holds_big, quoted
from ..json_types import from_json, read_as
from .avro import decoder
from .json_kernels import frame_objects

Mask = npt.NDArray[np.bool_]

_NOT_OF_A_RECORD = (ConnectorError, MemoryError)
"""Errors that say nothing about the record that is decoded."""


@dataclass(frozen=True)
class Decoded:
    """Columns of the records that could be decoded, in order; `bad`: which could not, one entry a
    record of the input (None: all could), and `why` of the first. `whys`: of each of those; empty:
    no more is known."""

    data: pa.RecordBatch
    bad: Mask | None = None
    why: str = ""
    whys: Sequence[str] = ()


class Format(ABC):
    """Decodes one field of records. Picklable; the same in all subtasks."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns that `decode` makes."""

    @abstractmethod
    def decode(self, values: pa.Array) -> Decoded:
        """`values`: a binary array with nulls where records have none. Raises nothing for what is
        in them; ConnectorError if something else that it takes cannot be had now."""


@dataclass(frozen=True)
class BytesFormat(Format):
    """The bytes as they are; null stays null."""

    column: str = "value"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.column, pa.binary())])

    def decode(self, values: pa.Array) -> Decoded:
        return Decoded(pa.record_batch([values], schema=self.schema))


@dataclass(frozen=True)
class StringFormat(Format):
    """Text; null stays null. charset: other ones than UTF-8 are decoded value by value."""

    column: str = "value"
    charset: str = "utf-8"

    def __post_init__(self) -> None:
        object.__setattr__(self, "charset", known_charset(self.charset))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.column, pa.string())])

    def decode(self, values: pa.Array) -> Decoded:
        if self.charset != "utf-8":
            return self._decode_each(values)
        try:
            return Decoded(self._made(values.cast(pa.string())))
        except pa.ArrowInvalid:
            bad = np.array([_utf8_error(value) is not None for value in values.to_pylist()])
            good = values.filter(pa.array(~bad)).cast(pa.string())
            whys = [str(_utf8_error(v)) for v in values.filter(pa.array(bad)).to_pylist()]
            return Decoded(self._made(good), bad, whys[0], whys)

    def _decode_each(self, values: pa.Array) -> Decoded:
        texts: list[str | None] = []
        refused: dict[int, str] = {}
        for at, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode(self.charset))
            except UnicodeError as error:
                refused[at] = f"not {self.charset}: {error}"
        return with_refused(self._made(pa.array(texts, pa.string())), refused, len(values))

    def _made(self, texts: pa.Array) -> pa.RecordBatch:
        return pa.record_batch([texts], schema=self.schema)


def _utf8_error(value: bytes | None) -> str | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return None


@dataclass(frozen=True)
class JsonFormat(Format):
    """One JSON object a record, by Arrow's own parser, without Python per record.

    columns: the columns' names and types (anything that declares a row type). A field that an
        object lacks is null, one that is not declared is left out, one of another type makes the
        record malformed: so is a null value (a tombstone of a compacted topic, too), a text that is
        no object, and more than one object. Dates and times are text: 2024-01-31, 12:00:00.5;
        BIG_DEC and BIG_INT text or numbers (these are read in Python, some microseconds a record).
    """

    columns: Any
    _schema: pa.Schema = field(init=False, repr=False)
    _big: bool = field(init=False, repr=False)
    """Whether there are numbers of any length."""
    _parsed: pa.Schema = field(init=False, repr=False)
    """What the parser makes of the columns: of dates and times text."""

    def __post_init__(self) -> None:
        schema = schema_of(self.columns)
        if schema is None or not len(schema):
            raise ConfigurationError("JsonFormat needs the columns' names and types")
        object.__setattr__(self, "_schema", schema)
        object.__setattr__(self, "_big", holds_big(schema))
        parsed = [(f.name, read_as(f.type) or f.type) for f in schema]
        object.__setattr__(self, "_parsed", pa.schema(parsed))
        probe = b"{%s}\n" % b",".join(json.dumps(n).encode() + b":null" for n in schema.names)
        try:
            self._read(np.frombuffer(probe, np.uint8))
        except pa.ArrowException as error:
            # Else every record would be malformed, and skipped where these are.
            raise ConfigurationError(
                f"JsonFormat: JSON has no values of some of these types ({error}): {schema}"
            ) from None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array) -> Decoded:
        framed, offsets, shaped = frame_objects(values)
        if shaped.all():
            whole = self._parse(framed[: offsets[-1]], len(values))
            if not isinstance(whole, str):
                return Decoded(whole)
        if self._big:  # numbers, perhaps, which the parser does not make text of
            ends = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
            records = [framed[start:end].tobytes() for start, end in ends]
            again = [quoted(record, self._schema) for record in records]
            texts = [text if good else None for text, good in zip(again, shaped, strict=True)]
            framed, offsets, _ = frame_objects(pa.array(texts, pa.binary()))
        bad: dict[int, str] = {}
        parts: list[pa.RecordBatch] = []
        for first, last in _runs(shaped):
            parts += self._salvage(framed, offsets, first, last, bad)
        data = joined(parts, self._schema)
        for at in np.flatnonzero(~shaped).tolist():
            bad[at] = _shape_error(values[at])
        return with_refused(data, bad, len(values))

    def _salvage(
        self,
        framed: npt.NDArray[np.uint8],
        offsets: Any,
        first: int,
        last: int,
        bad: dict[int, str],
    ) -> list[pa.RecordBatch]:
        """What can be parsed of records first..last-1, by halves; why the others cannot, in `bad`,
        by their places."""
        parsed = self._parse(framed[offsets[first] : offsets[last]], last - first)
        if not isinstance(parsed, str):
            return [parsed]
        if last - first == 1:
            bad[first] = parsed
            return []
        middle = (first + last) // 2
        return [
            *self._salvage(framed, offsets, first, middle, bad),
            *self._salvage(framed, offsets, middle, last, bad),
        ]

    def _parse(self, framed: npt.NDArray[np.uint8], count: int) -> pa.RecordBatch | str:
        """Of `count` objects that are framed: a row each. Why not, if one is malformed."""
        if not count:
            return _empty(self._schema)
        try:
            table = self._read(framed)
            table.validate(full=True)  # texts that are no UTF-8, decimals with too many digits
            if len(table) != count:
                return f"{count} JSON objects were read as {len(table)} rows"
            return from_json(table.combine_chunks().to_batches()[0], self._schema)
        except pa.ArrowInvalid as error:
            return str(error)

    def _read(self, framed: npt.NDArray[np.uint8]) -> pa.Table:
        read = pajson.ReadOptions(use_threads=False, block_size=len(framed) + 1)
        parse = pajson.ParseOptions(
            explicit_schema=self._parsed, unexpected_field_behavior="ignore"
        )
        return pajson.read_json(pa.BufferReader(pa.py_buffer(framed)), read, parse)


def _runs(good: Mask) -> list[tuple[int, int]]:
    """(first, behind the last) of each run of good records."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], good.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def with_refused(data: pa.RecordBatch, refused: Mapping[int, str], count: int) -> Decoded:
    """Of `count` records, of which some are refused, by their places."""
    if not refused:
        return Decoded(data)
    bad = np.zeros(count, dtype=np.bool_)
    bad[list(refused)] = True
    whys = [refused[at] for at in sorted(refused)]
    return Decoded(data, bad, whys[0], whys)


def _shape_error(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "the value is null, not a JSON object"
    return "the value is not exactly one JSON object"


def joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch, in order."""
    batches = pa.Table.from_batches(parts, schema).combine_chunks().to_batches()
    return batches[0] if batches else _empty(schema)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return empty_batch(schema)


@dataclass(frozen=True)
class AvroFormat(Format):
    """One Avro record a value, by fastavro: per record, some microseconds each.

    schema_json: the writers' Avro schema, as JSON text or parsed. registry: a Confluent schema
        registry's client properties (`url`, ...): values carry the id of their writer's schema
        (one zero byte and four of the id), which is asked for once and resolved to `schema_json`.
    """

    schema_json: Any
    registry: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(parsed(self.schema_json))

    def decode(self, values: pa.Array) -> Decoded:
        return _each(values, self.schema, decoder(self.schema_json, self.registry))


def _each(values: pa.Array, schema: pa.Schema, decode: Callable[[bytes], Any]) -> Decoded:
    """By a function for one value, which raises for a malformed one, or makes what no column of the
    schema takes. A ConnectorError goes on: what is needed to decode cannot be had."""
    rows: list[Any] = []
    places: list[int] = []
    refused: dict[int, str] = {}
    for at, value in enumerate(values.to_pylist()):
        try:
            if value is None:
                raise ValueError("the value is null")
            rows.append(decode(value))
            places.append(at)
        except _NOT_OF_A_RECORD:
            raise
        except Exception as error:
            refused[at] = f"{type(error).__name__}: {error}"
    data = joined(_in_columns(rows, places, schema, refused), schema)
    return with_refused(data, refused, len(values))


def _in_columns(
    rows: list[Any], places: list[int], schema: pa.Schema, refused: dict[int, str]
) -> list[pa.RecordBatch]:
    """Those of the rows that the columns take, by halves; why the others are not, by place."""
    try:
        return [pa.RecordBatch.from_pylist(rows, schema=schema)]
    except _NOT_OF_A_RECORD:
        raise
    except Exception as error:
        if len(rows) == 1:
            refused[places[0]] = f"{type(error).__name__}: {error}"
            return []
    half = len(rows) // 2
    return [
        *_in_columns(rows[:half], places[:half], schema, refused),
        *_in_columns(rows[half:], places[half:], schema, refused),
    ]
