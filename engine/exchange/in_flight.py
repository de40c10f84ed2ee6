"""What waits in a channel as rows of a checkpoint, and back.

Of the control elements only event time and activity are kept: by them it is decided which records
behind them are late. The end of all time comes again after a restore, as does the end of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...checkpoint.in_flight import Item, Made
from ...core.batch import Batch, ColumnBatch, ObjectBatch, Timestamps
from ...core.elements import MAX_TIMESTAMP, Control, Element, StreamStatus, Watermark
from ...core.errors import CorruptCheckpointError
from .codec import as_stream
from .compaction import compacted
from .pickling import pickle_values, unpickle_values


def is_kept(element: Control) -> bool:
    """Whether a control element belongs to what was on its way."""
    match element:
        case Watermark(timestamp):
            return timestamp != MAX_TIMESTAMP
        case StreamStatus():
            return True
    return False


def captured(element: Element) -> Made:
    """Makes its row, on any thread and any time later. Objects are pickled at once: who gets them
    may change them. SerializationError if they cannot be."""
    if isinstance(element, ObjectBatch):
        item = item_of(element)
        return lambda: item
    return lambda: item_of(element)


def item_of(element: Element) -> Item:
    """Its row."""
    match element:
        case Watermark(timestamp):
            return Item("watermark", timestamp)
        case StreamStatus(active):
            return Item("status", int(active))
        case ColumnBatch():
            data = memoryview(as_stream(compacted(element.data)))
            return Item("columns", len(element), data, _stamps(element))
        case ObjectBatch():
            return Item("objects", len(element), pickle_values(element.values), _stamps(element))
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


def _stamps(batch: Batch) -> Any:
    if batch.timestamps is None:
        return None
    return np.ascontiguousarray(batch.timestamps, dtype="<i8").tobytes()


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
