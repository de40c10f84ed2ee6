"""From snapshots of operators to files of a checkpoint, and back at any parallelism.

A keyed table is one Arrow IPC file, sorted by key group; its handle records where each key group
begins. A restored subtask owns a contiguous range of groups, so its share of a file is one slice,
and files without any of its groups are not read. Any Arrow tool can open the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.errors import CheckpointError, CorruptCheckpointError, StateError
from ..core.ids import CheckpointId, KeyGroupRange, OperatorId, TaskId
from ..state.backend import KEY_GROUP, KeyedSnapshot, OperatorStateTable, StateTable
from ..state.key_groups import range_for
from ..state.operator_state import OperatorStateSnapshot, redistribute
from .handles import FileHandle, KeyedHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from .manifest import Manifest
from .names import safe_name
from .storage import CheckpointStorage

Write = Callable[[str, pa.Table], FileHandle]
"""Makes a table a file of the checkpoint, by its name."""

Part = tuple[OperatorId, KeyedSnapshot | None, OperatorStateSnapshot | None]

_OPERATOR_STATE = pa.schema(
    [("name", pa.string()), ("mode", pa.string()), ("item", pa.large_binary())]
)
_MODES = ("split", "union", "broadcast")


def write_subtask(
    storage: CheckpointStorage,
    checkpoint_id: CheckpointId,
    task: TaskId,
    parts: Sequence[Part],
    stopped: Callable[[], bool] = lambda: False,
) -> SubtaskSnapshot:
    """The asynchronous part of a task's snapshot; runs beside the task's thread.

    parts: every operator of the task with its synchronous snapshots. States without rows or items
    leave no file. Raises CheckpointError when the storage fails or the task has been `stopped`
    (then nobody wants its files), StateError for a table that is not sorted by key group, and
    whatever deferred functions of the snapshots raise.
    """

    def write(name: str, data: pa.Table) -> FileHandle:
        file = to_ipc_file(data)
        if stopped():
            raise CheckpointError(f"task {task} was stopped before it wrote '{name}'")
        return storage.write_file(checkpoint_id, name, file)

    return SubtaskSnapshot(
        task,
        tuple(
            OperatorSnapshot(
                operator,
                _write_keyed(write, task, operator, keyed),
                _write_operator_state(write, task, operator, state),
            )
            for operator, keyed, state in parts
        ),
    )


def read_operator(
    storage: CheckpointStorage,
    manifest: Manifest,
    operator: OperatorId,
    subtask: int,
    parallelism: int,
    max_parallelism: int,
) -> tuple[list[StateTable], list[OperatorStateTable]]:
    """What `subtask` of `parallelism` starts from: the rows of its key groups, its share of the
    operator state. Both empty if the checkpoint does not know the operator.

    Tables of one name come from several former subtasks, in order of their index. Raises StateError
    when keyed state was taken at another max parallelism, CorruptCheckpointError for bad files.
    """
    snapshots = manifest.snapshots(operator)
    keyed = [handle for snapshot in snapshots for handle in snapshot.keyed]
    if keyed:
        _check_max_parallelism(manifest, operator, max_parallelism)
    groups = range_for(subtask, parallelism, max_parallelism)
    tables = []
    for handle in keyed:
        rows = rows_of(handle, groups)
        if rows is not None:
            tables.append(_read_keyed(storage, manifest.checkpoint_id, handle, *rows))
    former = [
        _read_operator_state(storage, manifest.checkpoint_id, snapshot.operator_state)
        for snapshot in snapshots
    ]
    return tables, redistribute(former, parallelism)[subtask] if any(former) else []


def group_offsets(data: pa.Table) -> tuple[tuple[int, int, int], ...]:
    """(key group, first row, rows) of each key group of a table sorted by KEY_GROUP, ascending."""
    if data.num_rows == 0:
        return ()
    column = data.column(KEY_GROUP)
    if column.null_count or not pa.types.is_integer(column.type):
        raise StateError(f"column {KEY_GROUP} must be integers without nulls, is {column.type}")
    groups = numpy_of(column)
    steps = np.diff(groups)
    if (steps < 0).any():
        row = int(np.flatnonzero(steps < 0)[0]) + 1
        raise StateError(
            f"column {KEY_GROUP} is not ascending: row {row} has {groups[row]} after "
            f"{groups[row - 1]}"
        )
    first = np.concatenate(([0], np.flatnonzero(steps) + 1))
    rows = np.diff(first, append=len(groups))
    return tuple(zip(groups[first].tolist(), first.tolist(), rows.tolist(), strict=True))


def rows_of(handle: KeyedHandle, groups: KeyGroupRange) -> tuple[int, int] | None:
    """First row and number of rows of the key groups in `groups`, None if there are none."""
    inside = [(first, first + rows) for group, first, rows in handle.groups if group in groups]
    if not inside:
        return None
    return inside[0][0], inside[-1][1] - inside[0][0]


def _write_keyed(
    write: Write, task: TaskId, operator: OperatorId, snapshot: KeyedSnapshot | None
) -> tuple[KeyedHandle, ...]:
    handles = []
    for index, table in enumerate(() if snapshot is None else snapshot.tables()):
        if table.data.num_rows == 0:
            continue
        try:
            groups = group_offsets(table.data)
        except (StateError, KeyError) as error:
            raise StateError(
                f"operator '{operator}', subtask {task.subtask}, state '{table.name}': {error}"
            ) from error
        name = f"{safe_name(operator)}-{task.subtask}-{index}.arrow"
        file = write(name, table.data)
        handles.append(KeyedHandle(table.name, table.kind, file, groups, dict(table.metadata)))
    return tuple(handles)


def _write_operator_state(
    write: Write, task: TaskId, operator: OperatorId, snapshot: OperatorStateSnapshot | None
) -> OperatorHandle | None:
    tables = [] if snapshot is None else snapshot.tables()
    rows = [(table.name, table.mode, item) for table in tables for item in table.items]
    if not rows:
        return None
    columns = [list(column) for column in zip(*rows, strict=True)]
    data = pa.table(columns, schema=_OPERATOR_STATE)
    name = f"{safe_name(operator)}-{task.subtask}-operator.arrow"
    return OperatorHandle(write(name, data))


def _read_keyed(
    storage: CheckpointStorage,
    checkpoint_id: CheckpointId,
    handle: KeyedHandle,
    first: int,
    rows: int,
) -> StateTable:
    data = from_ipc_file(storage, checkpoint_id, handle.file)
    if first < 0 or rows < 0 or first + rows > data.num_rows:
        raise CorruptCheckpointError(
            f"{handle.file.path}: key groups at rows {first}..{first + rows}, the file has "
            f"{data.num_rows} rows"
        )
    return StateTable(handle.name, handle.kind, data.slice(first, rows), dict(handle.metadata))


def _read_operator_state(
    storage: CheckpointStorage, checkpoint_id: CheckpointId, handle: OperatorHandle | None
) -> list[OperatorStateTable]:
    if handle is None:
        return []
    data = from_ipc_file(storage, checkpoint_id, handle.file)
    if data.schema != _OPERATOR_STATE:
        raise CorruptCheckpointError(
            f"{handle.file.path}: expected columns {_OPERATOR_STATE.names} of operator state, "
            f"found {data.schema.names}"
        )
    items: dict[tuple[str, str], list[bytes]] = {}
    columns = (data.column(name).to_pylist() for name in _OPERATOR_STATE.names)
    for name, mode, item in zip(*columns, strict=True):
        items.setdefault((name, mode), []).append(item)
    unknown = sorted({mode for _, mode in items} - set(_MODES))
    if unknown:
        raise CorruptCheckpointError(f"{handle.file.path}: unknown operator state modes {unknown}")
    return [
        OperatorStateTable(name, mode, tuple(found))  # type: ignore[arg-type]
        for (name, mode), found in items.items()
    ]


def to_ipc_file(data: pa.Table) -> pa.Buffer:
    """The table in Arrow's IPC file format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data)
    return sink.getvalue()


def from_ipc_file(
    storage: CheckpointStorage, checkpoint_id: CheckpointId, handle: FileHandle
) -> pa.Table:
    """A file of a checkpoint as a table over its bytes."""
    data = storage.read_file(checkpoint_id, handle)
    try:
        return pa.ipc.open_file(data).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptCheckpointError(f"{handle.path}: not an Arrow IPC file: {error}") from error


def _check_max_parallelism(manifest: Manifest, operator: OperatorId, max_parallelism: int) -> None:
    shape = manifest.shape(operator)
    if shape is None:
        raise CorruptCheckpointError(
            f"checkpoint {manifest.checkpoint_id}: operator '{operator}' has state but no shape"
        )
    if shape.max_parallelism != max_parallelism:
        raise StateError(
            f"operator '{operator}' ('{shape.name}'): checkpoint {manifest.checkpoint_id} was "
            f"taken at max_parallelism {shape.max_parallelism}, the job has {max_parallelism}; "
            "keyed state cannot move between them: set max_parallelism back"
        )
