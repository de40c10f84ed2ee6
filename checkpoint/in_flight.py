"""What barriers overtook: the records on their way to and from one task, as a file of a checkpoint.

One Arrow IPC file per task, a row for each thing that waited, the channels one after the other and
each in its order. Any Arrow tool can open it:

    edge            the name of the edge (`engine.graph.edge_names`)
    source, target  subtasks. A negative source: it was on its way already when the task was
                    restored, and comes before all that is of a source
    unsent          whether it had not left the sender, and so comes behind what had
    kind            number                      data                        stamps
     columns         records                     an Arrow IPC stream         int64 ms each, or null
     objects         records                     a pickled list              the same
     watermark       ms                          null                        null
     status          1 active, 0 idle            null                        null

Barriers, latency markers and ends of data are left out: they come again after a restore. A task
that anything was on its way to has a status of each of its channels, so that all are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import pyarrow as pa

from ..core.errors import CorruptCheckpointError
from ..core.ids import CheckpointId, OperatorId, TaskId
from .cancellation import Cancellation
from .handles import InFlightHandle
from .ipc_files import FilesFrom, from_ipc_file
from .names import safe_name
from .transfers import INLINE, Transfers
from .uploads import FilesTo, Uploads

Kind = Literal["columns", "objects", "watermark", "status"]

SCHEMA: Final = pa.schema(
    [
        ("edge", pa.dictionary(pa.int32(), pa.string())),
        ("source", pa.int32()),
        ("target", pa.int32()),
        ("unsent", pa.bool_()),
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("data", pa.large_binary()),
        ("stamps", pa.large_binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that waited. `data` and `stamps`: anything with a buffer."""

    kind: Kind
    number: int
    data: Any = None
    stamps: Any = None


Made = Callable[[], Item | None]
"""Makes an item, on any thread; None: there is nothing of it."""


class Place(NamedTuple):
    """The channel of a row. Read again in this order: what was unsent comes last."""

    edge: str
    source: int
    target: int
    unsent: bool


Waiting = tuple[Place, Sequence[Made]]
"""What waited in one channel, in its order."""


def write_in_flight(
    storage: FilesTo,
    checkpoint_id: CheckpointId,
    task: TaskId,
    waiting: Iterable[Waiting],
    cancellation: Cancellation,
    transfers: Transfers = INLINE,
) -> InFlightHandle | None:
    """None if nothing waited. Raises what `write_subtask` does, and what items raise."""
    rows = [
        (*place, item.kind, item.number, _viewed(item.data), _viewed(item.stamps))
        for place, made in waiting
        for make in made
        if (item := make()) is not None
    ]
    if not rows:
        return None
    columns = [
        pa.array(list(column), type=field.type)
        for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    data = pa.table(columns, schema=SCHEMA)
    name = f"{safe_name(OperatorId(task.vertex))}-{task.subtask}-in-flight.arrow"
    with Uploads(storage, checkpoint_id, transfers, cancellation) as uploads:
        file = uploads.table(name, data).result()
    return InFlightHandle(file, tuple(sorted({row[0] for row in rows})))


def _viewed(value: Any) -> Any:
    """Bytes as Arrow takes them into an array."""
    return memoryview(value) if isinstance(value, pa.Buffer) else value


def read_table(storage: FilesFrom, checkpoint_id: CheckpointId, handle: InFlightHandle) -> pa.Table:
    """All of it. CorruptCheckpointError for bad files."""
    data = from_ipc_file(storage, checkpoint_id, handle.file)
    if data.schema != SCHEMA:
        raise CorruptCheckpointError(
            f"{handle.file.path}: expected columns {SCHEMA.names} of records in flight, found "
            f"{data.schema.names}"
        )
    return data


def read_in_flight(
    storage: FilesFrom,
    checkpoint_id: CheckpointId,
    handle: InFlightHandle,
    wanted: Callable[[Place], bool],
) -> Iterator[tuple[Place, list[Item]]]:
    """The channels that are wanted. CorruptCheckpointError for bad files."""
    data = read_table(storage, checkpoint_id, handle)
    keys = zip(*(data.column(name).to_pylist() for name in Place._fields), strict=True)
    first = 0
    for place, same in groupby(Place(*key) for key in keys):
        rows = sum(1 for _ in same)
        if wanted(place):
            yield place, _items(data.slice(first, rows), handle.file.path)
        first += rows


def _items(rows: pa.Table, path: str) -> list[Item]:
    kinds, numbers = rows.column("kind").to_pylist(), rows.column("number").to_pylist()
    unknown = sorted(set(map(str, kinds)) - set(get_args(Kind)))
    if unknown:
        raise CorruptCheckpointError(f"{path}: unknown kinds of records in flight {unknown}")
    if None in numbers:
        raise CorruptCheckpointError(f"{path}: records in flight without a number")
    contents = zip(rows.column("data"), rows.column("stamps"), strict=True)
    return [
        Item(cast(Kind, kind), number, content.as_buffer(), stamps.as_buffer())
        for kind, number, (content, stamps) in zip(kinds, numbers, contents, strict=True)
    ]
