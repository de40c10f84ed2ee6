"""What was on its way as rows of a checkpoint, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...checkpoint.in_flight import Item, Made
from ...core.batch import Batch, ColumnBatch, ObjectBatch, Timestamps
from ...core.elements import Element, StreamStatus, Watermark
from ...core.errors import CorruptCheckpointError
from ..exchange.codec import as_stream
from ..exchange.compaction import compacted
from ..exchange.kept import Kept, Pickled, kept
from ..exchange.pickling import unpickle_values


def made(kept_: Kept) -> Made:
    """Makes the row of what was kept."""
    return lambda: item_of(kept_())


def captured(element: Element) -> Made:
    """Makes its row, on any thread and any time later. As `kept`."""
    return made(kept(element))


def item_of(element: Element | Pickled) -> Item:
    """Its row."""
    match element:
        case Watermark(timestamp):
            return Item("watermark", timestamp)
        case StreamStatus(active):
            return Item("status", int(active))
        case ColumnBatch():
            data = memoryview(as_stream(compacted(element.data)))
            return Item("columns", len(element), data, _stamps(element.timestamps))
        case ObjectBatch():
            return item_of(kept(element)())
        case Pickled():
            return Item("objects", element.rows, element.values, _stamps(element.timestamps))
    raise TypeError(f"{element} is not kept")


def element_of(item: Item) -> Batch | Watermark | StreamStatus:
    """The element of a row. CorruptCheckpointError if it cannot be read."""
    match item.kind:
        case "watermark":
            return Watermark(item.number)
        case "status":
            return StreamStatus(bool(item.number))
        case "objects":
            batch: Batch = ObjectBatch(unpickle_values(item.data), _read_stamps(item))
        case "columns":
            batch = ColumnBatch(_read_columns(item), _read_stamps(item))
    if len(batch) != item.number:
        raise CorruptCheckpointError(
            f"records in flight: a batch of {item.number} records holds {len(batch)}"
        )
    return batch


def _stamps(timestamps: Timestamps | None) -> Any:
    if timestamps is None:
        return None
    return np.ascontiguousarray(timestamps, dtype="<i8").tobytes()


def _read_stamps(item: Item) -> Timestamps | None:
    if item.stamps is None:
        return None
    if item.stamps.size != 8 * item.number:
        raise CorruptCheckpointError(
            f"records in flight: {item.number} records with {item.stamps.size} bytes of timestamps"
        )
    return np.frombuffer(item.stamps, dtype="<i8")


def _read_columns(item: Item) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(item.data) as reader:
            data = reader.read_next_batch()
        data.validate()
    except (pa.ArrowException, OSError, EOFError, StopIteration, ValueError) as error:
        raise CorruptCheckpointError(f"records in flight cannot be read: {error}") from error
    return data
