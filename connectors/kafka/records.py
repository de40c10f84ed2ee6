"""Messages of one partition become a batch: values decoded, what else is asked for beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.connectors.base import Emit
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.errors import ConfigurationError, ConnectorError
from . import librdkafka as lib
from .formats import BytesFormat, Decoded, Format, Mask
from .message_kernels import gather, gather_headers
from .offsets import KafkaSplit

Int64s = npt.NDArray[np.int64]

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

METADATA: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "headers": HEADERS,
}
"""What a record has beside its value. `key`: as the key's format makes it."""

DEAD_LETTERS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("error", pa.string()),
    ]
)
"""Columns of malformed records in their side output. `error`: why; null where the format says it of
the first of a batch only."""

MALFORMED: Final = "malformed_records"
"""The metric that counts them, whether they are dropped or go to a side output."""

_SHOWN: Final = 200
"""Bytes of a malformed value that a message shows."""


@dataclass(frozen=True)
class Messages:
    """Some messages in the library's memory. `addresses` may be longer than the others."""

    errors: Int64s
    offsets: Int64s
    timestamps: Int64s
    key_lengths: Int64s
    value_lengths: Int64s
    addresses: Int64s

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def last_offset(self) -> int:
        return int(self.offsets[-1])

    def runs(self) -> Iterator[tuple[int, int]]:
        """(first, behind the last) of the records between errors, in order; the error, if any, is
        at the second. Some are empty."""
        first = 0
        for error in [*np.flatnonzero(self.errors).tolist(), len(self)]:
            yield first, error
            first = error + 1

    def slice(self, first: int, last: int) -> Messages:
        return Messages(
            self.errors[first:last],
            self.offsets[first:last],
            self.timestamps[first:last],
            self.key_lengths[first:last],
            self.value_lengths[first:last],
            self.addresses[first:last],
        )

    def before(self, stop: int) -> Messages:
        """Those with an offset less than `stop`; offsets ascend."""
        return self.slice(0, int(np.searchsorted(self.offsets, stop)))

    def values(self) -> pa.Array:
        return _binary(gather(self.addresses, self.value_lengths, False), self.value_lengths)

    def keys(self) -> pa.Array:
        return _binary(gather(self.addresses, self.key_lengths, True), self.key_lengths)

    def headers(self) -> pa.Array:
        """A list a record, empty for one without headers."""
        ends, name_ends, names, value_ends, values, present = gather_headers(
            self.addresses,
            len(self),
            lib.address("rd_kafka_message_headers"),
            lib.address("rd_kafka_header_get_all"),
        )
        total = len(present)
        valid = np.packbits(present, bitorder="little")
        keys = pa.Array.from_buffers(
            pa.binary(), total, [None, pa.py_buffer(name_ends), pa.py_buffer(names)]
        ).cast(pa.string())
        contents = pa.Array.from_buffers(
            pa.binary(),
            total,
            [pa.py_buffer(valid), pa.py_buffer(value_ends), pa.py_buffer(values)],
        )
        pairs = pa.StructArray.from_arrays([keys, contents], fields=list(HEADERS.value_type))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=HEADERS)


def _binary(gathered: tuple[Any, Any], lengths: Int64s) -> pa.Array:
    ends, data = gathered
    valid = lengths >= 0
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [mask, pa.py_buffer(ends), pa.py_buffer(data)]
    )


@dataclass(frozen=True)
class RecordDecoder:
    """What the batches of a source are made of. Picklable.

    value, key: their formats. include: what of METADATA becomes a column, and its name. objects:
        records are the values of `value`'s only column, not rows. dead_letters: the tag of the side
        output of malformed records; None: they fail the job.
    """

    value: Format
    key: Format
    include: tuple[tuple[str, str], ...] = ()
    objects: bool = False
    dead_letters: str | None = None

    def __post_init__(self) -> None:
        unknown = [what for what, _ in self.include if what not in METADATA]
        if unknown:
            raise ConfigurationError(
                f"a Kafka record has no {unknown}: include takes {list(METADATA)}"
            )
        names = [] if self.objects else self.schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(
                f"two columns of the Kafka source are called {twice}: give what you include "
                'another name: include={"timestamp": "kafka_timestamp"}'
            )

    @property
    def schema(self) -> pa.Schema:
        """The value's columns, then those included; the key's in its place."""
        fields = list(self.value.schema)
        for what, name in self.include:
            if what == "key":
                fields += self._key_fields(name)
            else:
                fields.append(pa.field(name, METADATA[what]))
        return pa.schema(fields)

    def decode(self, messages: Messages, split: KafkaSplit) -> Emit:
        """Records of one partition, none of them an error. ConnectorError for a malformed one, if
        there is no side output for it."""
        values = messages.values()
        decoded = self.value.decode(values)
        columns: list[pa.Array] = list(decoded.data.columns)
        bad, whys = decoded.bad, _reasons(decoded, "")
        beside: list[Sequence[pa.Array]] = []
        for what, _ in self.include:
            if what != "key":
                beside.append([_metadata(what, messages, split)])
                continue
            keys = self._keys(messages)
            beside.append(keys.columns)
            bad, whys = _both(bad, whys, keys.bad, keys.whys)
        times = messages.timestamps
        side: list[tuple[str, Batch]] = []
        if bad is not None:
            side = self._malformed(messages, values, split, bad, whys)
            good = ~bad
            # Columns of the value lack what was malformed in it already.
            kept = good if decoded.bad is None else good[~decoded.bad]
            columns = [column.filter(pa.array(kept)) for column in columns]
            beside = [[c.filter(pa.array(good)) for c in group] for group in beside]
            times = times[good]
        stamps = times if (times >= 0).all() else None
        if self.objects:
            return Emit(ObjectBatch(columns[0].to_pylist(), stamps), split.split_id, side=side)
        for group in beside:
            columns += group
        data = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Emit(ColumnBatch(data, stamps), split.split_id, side=side)

    def _key_fields(self, name: str) -> list[pa.Field]:
        """One column is called `name`; several keep their names."""
        fields = list(self.key.schema)
        return [fields[0].with_name(name)] if len(fields) == 1 else fields

    def _keys(self, messages: Messages) -> _Keys:
        decoded: Decoded = self.key.decode(messages.keys())
        if decoded.bad is None:
            return _Keys(list(decoded.data.columns), None, {})
        rows = np.cumsum(~decoded.bad) - 1
        places = pa.array(rows, pa.int64(), mask=decoded.bad)
        columns = [column.take(places) for column in decoded.data.columns]
        return _Keys(columns, decoded.bad, _reasons(decoded, "key: "))

    def _malformed(
        self,
        messages: Messages,
        values: pa.Array,
        split: KafkaSplit,
        bad: Any,
        whys: Mapping[int, str],
    ) -> list[tuple[str, Batch]]:
        first = int(np.argmax(bad))
        if self.dead_letters is None:
            shown = values[first].as_py()
            text = "null" if shown is None else repr(shown[:_SHOWN])
            raise ConnectorError(
                f"the record at offset {int(messages.offsets[first])} of Kafka partition "
                f"{split.split_id} is malformed: {whys.get(first, '')}; its value is "
                f"{text}. Mend the producer, or send such records to a side output: "
                "malformed=OutputTag(...)"
            )
        columns = [
            _metadata(name, messages, split) if name in METADATA else values
            for name in DEAD_LETTERS.names[:-1]
        ]
        reasons = pa.array([whys.get(at) for at in np.flatnonzero(bad).tolist()], pa.string())
        mask = pa.array(bad)
        data = pa.RecordBatch.from_arrays(
            [*(column.filter(mask) for column in columns), reasons], schema=DEAD_LETTERS
        )
        return [(self.dead_letters, ColumnBatch(data))]


@dataclass(frozen=True)
class _Keys:
    """The key's columns, a row for each record: of one whose key is malformed, null. `whys`: of
    `bad`, by their places."""

    columns: Sequence[pa.Array]
    bad: Mask | None
    whys: Mapping[int, str]


def _reasons(decoded: Decoded, prefix: str) -> Mapping[int, str]:
    """Why records are malformed, by their places."""
    if decoded.bad is None:
        return {}
    places = np.flatnonzero(decoded.bad).tolist()
    whys = decoded.whys or [decoded.why]
    return {at: prefix + why for at, why in zip(places, whys, strict=False)}


def _both(
    one: Mask | None, whys: Mapping[int, str], other: Mask | None, whys_other: Mapping[int, str]
) -> tuple[Any, Mapping[int, str]]:
    """Records that are malformed for either reason, and why."""
    if one is None or other is None:
        return (one, whys) if other is None else (other, whys_other)
    return one | other, {**whys_other, **whys}


def _metadata(what: str, messages: Messages, split: KafkaSplit) -> pa.Array:
    count = len(messages)
    match what:
        case "key":
            return messages.keys()
        case "topic":
            return pa.repeat(pa.scalar(split.topic, pa.string()), count)
        case "partition":
            return pa.repeat(pa.scalar(split.partition, pa.int32()), count)
        case "offset":
            return pa.array(messages.offsets)
        case "timestamp":
            times = messages.timestamps
            return pa.array(times, pa.int64(), mask=times < 0).cast(METADATA["timestamp"])
    return messages.headers()


def raw() -> Format:
    """Keys that nobody gave a format."""
    return BytesFormat("key")
