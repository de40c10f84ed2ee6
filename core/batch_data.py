"""Batches as plain data, for state and stores: bytes that outlive the program that wrote them.

    batch_data(batch)  ("columns", an Arrow IPC stream of one batch, the times' bytes or None)
                       ("objects", a list of records, or what `packed` makes of it, ...)

The times' bytes are int64 in the order of this machine. Of a slice only what it shows is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from .batch import Batch, ColumnBatch, ObjectBatch

BatchData = tuple[str, Any, bytes | None]


def batch_data(batch: Batch, packed: Callable[[list[Any]], Any] | None = None) -> BatchData:
    """`packed`: what is kept of a list of records, instead of the list itself."""
    stamps = None if batch.timestamps is None else batch.timestamps.tobytes()
    if isinstance(batch, ColumnBatch):
        return "columns", columns_data(batch.data), stamps
    return "objects", batch.values if packed is None else packed(list(batch.values)), stamps


def batch_of(data: BatchData, unpacked: Callable[[Any], list[Any]] | None = None) -> Batch:
    """What `batch_data` was given. `unpacked`: undoes its `packed`."""
    kind, payload, raw = data
    stamps = None if raw is None else np.frombuffer(raw, dtype=np.int64)
    if kind == "columns":
        return ColumnBatch(columns_of(payload), stamps)
    return ObjectBatch(payload if unpacked is None else unpacked(payload), stamps)


def columns_data(data: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def columns_of(written: bytes) -> pa.RecordBatch:
    """The batch that `columns_data` wrote, over its bytes."""
    with pa.ipc.open_stream(written) as reader:
        return reader.read_next_batch()
