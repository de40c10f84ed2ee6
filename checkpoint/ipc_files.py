"""Tables as files of a checkpoint."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from ..core.errors import CorruptCheckpointError
from ..core.ids import CheckpointId
from .handles import FileHandle


class FilesFrom(Protocol):
    """What files of checkpoints are read from, on any thread."""

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        """As of a storage."""
        ...


def to_ipc_file(data: pa.Table) -> pa.Buffer:
    """The table in Arrow's IPC file format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data)
    return sink.getvalue()


def from_ipc_file(storage: FilesFrom, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Table:
    """A file of a checkpoint as a table over its bytes."""
    data = storage.read_file(checkpoint_id, handle)
    try:
        return pa.ipc.open_file(data).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptCheckpointError(f"{handle.path}: not an Arrow IPC file: {error}") from error
