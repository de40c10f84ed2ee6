"""From a batch to records: keys, values, headers, topics, partitions and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrays import Bools, Int8s, Int64s, numpy_of
from ...core.batch import Batch, ColumnBatch
from ...core.errors import ConfigurationError, TypeMismatchError
from ...core.row_kind import ROW_KIND, RowKind, retracts, split_kinds
from .outgoing import NO_PARTITION, Outgoing, as_bytes, outgoing
from .serialization import Encoder, column_of

Changelog = Literal["refuse", "upsert"]

TopicOf = str | Callable[[Any], str]
"""A column, or a function of a record, which is called for each."""

WHO: Final = "KafkaSink"

MOST_PARTITION: Final = 2**31 - 1
"""Kafka numbers partitions in 32 bits."""


@dataclass(frozen=True)
class RecordFormat:
    """What a sink makes of a batch. Picklable.

    topic: of all records, or None: `topic_column` says it. headers: names, and the columns they are
    in. partition: a column, or None. event_times: whether they become the records' timestamps.
    changelog: what becomes of batches with row kinds.
    """

    topic: str | None
    topic_column: TopicOf | None
    value: Encoder
    key: Encoder | None
    headers: Mapping[str, str]
    partition: str | None
    event_times: bool
    changelog: Changelog

    def __post_init__(self) -> None:
        if (self.topic is None) == (self.topic_column is None):
            raise ConfigurationError(
                f"{WHO}: give a topic, or topic_column, which has each record's"
            )
        if self.changelog not in ("refuse", "upsert"):
            raise ConfigurationError(
                f'{WHO}: changelog is "refuse" or "upsert", not {self.changelog!r}'
            )
        if self.changelog == "upsert" and self.key is None:
            raise ConfigurationError(
                f"{WHO}: upserts need a key, by which readers know what a record replaces: give "
                "key=..."
            )


def make_records(form: RecordFormat, batch: Batch) -> Outgoing:
    """All records of a batch; of a changelog upserts and deletes. Raises TypeMismatchError naming
    what does not fit."""
    batch, kinds = _split(form, batch)
    key = None if form.key is None else form.key.encode(batch)
    if form.changelog == "upsert" and key is not None and key.null_count:
        raise TypeMismatchError(
            f"{WHO}: the key of a record is null, so nobody could tell what it replaces: filter "
            "such records out, or give another key"
        )
    deleted = None
    if kinds is not None and key is not None and retracts(kinds).any():
        keep = ~_replaced(kinds, key)
        batch, key, deleted = batch.filter(keep), key.filter(pa.array(keep)), retracts(kinds[keep])
    value = form.value.encode(batch)
    if deleted is not None and deleted.any():
        value = pc.if_else(pa.array(deleted), pa.scalar(None, value.type), value)
    headers = {
        name: as_bytes(column_of(batch, column, WHO), f"header '{name}'")
        for name, column in form.headers.items()
    }
    topic = form.topic if form.topic_column is None else _topics(batch, form.topic_column)
    assert topic is not None
    partitions = None if form.partition is None else _partitions(batch, form.partition)
    stamps = _timestamps(batch) if form.event_times else None
    return outgoing(topic, value, key, headers, partitions, stamps)


def _split(form: RecordFormat, batch: Batch) -> tuple[Batch, Int8s | None]:
    """The records without their kinds, and these; None: the batch only inserts."""
    if not isinstance(batch, ColumnBatch):
        return batch, None
    data, kinds = split_kinds(batch.data)
    if kinds is None:
        return batch, None
    if form.changelog == "refuse":
        raise TypeMismatchError(
            f"{WHO}: this stream is a changelog (it has the column {ROW_KIND}), and appended to a "
            'topic its updates would count twice: set changelog="upsert" and a key, and records '
            "with that key replace each other, or put the sink ahead of what makes the changelog"
        )
    return ColumnBatch(data, batch.timestamps), kinds


def _replaced(kinds: Int8s, key: pa.Array) -> Bools:
    """Which records are -U directly before a +U of the same key, which says it all. Any other -U
    takes its key's row away, as a -D does: the row that comes instead has another key."""
    replaced: Bools = kinds == RowKind.UPDATE_BEFORE
    same = numpy_of(pc.equal(key[:-1], key[1:]))
    replaced[:-1] &= same & (kinds[1:] == RowKind.UPDATE_AFTER)
    replaced[-1:] = False
    return replaced


def _topics(batch: Batch, of: TopicOf) -> pa.Array:
    if not isinstance(of, str):
        names = [of(record) for record in batch.rows()]
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise TypeMismatchError(f"{WHO}: {wrong[0]!r} is no topic's name")
        return pa.array(names, pa.string())
    column = column_of(batch, of, WHO)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        if column.type != pa.string_view():
            raise TypeMismatchError(
                f"{WHO}: the column '{of}' of topics has type {column.type}, not string"
            )
        column = column.cast(pa.string())
    if column.null_count:
        raise TypeMismatchError(f"{WHO}: the column '{of}' of topics holds a null")
    return column


def _partitions(batch: Batch, name: str) -> Int64s:
    """NO_PARTITION where the column is null."""
    column = column_of(batch, name, WHO)
    if not pa.types.is_integer(column.type):
        raise TypeMismatchError(
            f"{WHO}: the column '{name}' of partitions has type {column.type}, not int"
        )
    least, most = pc.min(column).as_py(), pc.max(column).as_py()
    if least is not None and (least < 0 or most > MOST_PARTITION):
        raise TypeMismatchError(
            f"{WHO}: the column '{name}' holds partition {least if least < 0 else most}; they "
            "count from 0, in 32 bits"
        )
    filled = column.cast(pa.int64()).fill_null(NO_PARTITION)
    return numpy_of(filled).astype(np.int64, copy=False)


def _timestamps(batch: Batch) -> Int64s | None:
    stamps = batch.timestamps
    if stamps is None or not len(stamps):
        return None
    if stamps.min() < 0:
        raise TypeMismatchError(
            f"{WHO}: an event time of {int(stamps.min())} ms is before 1970, which Kafka has no "
            "timestamps for: write without event times"
        )
    return np.maximum(stamps, 1)
