"""From snapshots of operators to files of a checkpoint, and back at any parallelism.

A keyed table is one Arrow IPC file, sorted by key group; its handle records where each key group
begins. A restored subtask owns a contiguous range of groups, so its share of a file is one slice,
and files without any of its groups are not read. Any Arrow tool can open the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.errors import CorruptCheckpointError, StateError
from ..core.ids import EVEN, CheckpointId, Deal, KeyGroupRange, OperatorId, TaskId
from ..state.backend import KEY_GROUP, KeyedSnapshot, OperatorStateTable, StateTable
from ..state.increments import EVERY_GROUP
from ..state.key_groups import range_for
from ..state.operator_state import OperatorStateSnapshot, kept, redistribute
from ..state.rocks.database.arenas import give_back_freed
from .cancellation import Cancellation
from .databases import DatabaseFilesFrom, DatabaseUpload, read_database
from .downloads import Downloads
from .handles import FileHandle, KeyedHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from .increments import Files, Layers
from .ipc_files import FilesFrom
from .ipc_files import from_ipc_file as from_ipc_file
from .ipc_files import to_ipc_file as to_ipc_file
from .layers import flattened
from .manifest import Manifest
from .names import safe_name
from .transfers import INLINE, Pending, Transfers
from .uploads import FilesTo, Uploads

Write = Callable[..., Pending[FileHandle]]
"""Begins to make a table a file of the checkpoint, by its name; one that others may use, if
`shared`."""

Part = tuple[OperatorId, KeyedSnapshot | None, OperatorStateSnapshot | None]

_OPERATOR_STATE = pa.schema(
    [("name", pa.string()), ("mode", pa.string()), ("item", pa.large_binary())]
)
_MODES = ("split", "union", "broadcast")


def write_subtask(
    storage: FilesTo,
    checkpoint_id: CheckpointId,
    task: TaskId,
    parts: Sequence[Part],
    cancellation: Cancellation | None = None,
    layers: Mapping[OperatorId, Layers] | None = None,
    transfers: Transfers = INLINE,
    files: Mapping[OperatorId, Files] | None = None,
) -> SubtaskSnapshot:
    """The asynchronous part of a task's snapshot; runs beside the task's thread.

    parts: every operator of the task with its synchronous snapshots. States without rows or items
    leave no file. `layers`: what the snapshots continue, `files`: those of local databases that
    are there already (`increments`). `transfers`: where files are written, while the next ones are
    encoded. Raises CheckpointError when the storage fails, UnwantedError (one, too) soon after
    `cancellation` was cancelled, StateError for a table that is not sorted by key group, and
    whatever deferred functions of the snapshots raise; no file is left then.
    """
    wanted = cancellation or Cancellation()
    databases = [
        keyed.database for _, keyed, _ in parts if keyed is not None and keyed.database is not None
    ]
    try:
        for database in databases:
            database.hold()
        packs = f"{safe_name(parts[0][0])}-{task.subtask}" if parts else None
        with Uploads(storage, checkpoint_id, transfers, wanted, packs) as uploads:
            begun = [
                (
                    operator,
                    _continued(keyed, (layers or {}).get(operator, {})),
                    # first what is in memory until it is written
                    _write_keyed(uploads.table, task, operator, keyed),
                    _write_database(uploads, task, operator, keyed, files or {}),
                    _write_operator_state(uploads.table, task, operator, state),
                )
                for operator, keyed, state in parts
            ]
            return SubtaskSnapshot(
                task,
                tuple(
                    OperatorSnapshot(
                        operator,
                        (*continued, *(make(file=file.result()) for make, file in keyed)),
                        None if state is None else OperatorHandle(state.result()),
                        None if stored is None else stored.handle(),
                    )
                    for operator, continued, keyed, stored, state in begun
                ),
            )
    finally:
        for database in databases:
            database.remove()
        # Arrow keeps what was freed, of the thread that freed it, up to all that was encoded
        pa.default_memory_pool().release_unused()
        if databases:
            give_back_freed()


def read_operator(
    storage: DatabaseFilesFrom,
    manifest: Manifest,
    operator: OperatorId,
    subtask: int,
    parallelism: int,
    max_parallelism: int,
    transfers: Transfers = INLINE,
    inherits: bool = False,
    own_share: bool = False,
    deal: Deal = EVEN,
) -> tuple[list[StateTable], list[OperatorStateTable]]:
    """What `subtask` of `parallelism` starts from: the rows of its key groups, which are dealt to
    these as `deal` says, and its share of the operator state. Both empty if the checkpoint does not
    know the operator.

    Tables of one name come from several former subtasks, in order of their index. Raises StateError
    when keyed state was taken at another max parallelism, CorruptCheckpointError for bad files.
    inherits: the files of the local database are taken over (`databases.inherited`), and not read
    here. own_share: the other subtasks go on from what they had at the checkpoint, so none of that
    is this one's (`operator_state.kept`).
    """
    snapshots = manifest.snapshots(operator)
    if any(snapshot.keyed or snapshot.database for snapshot in snapshots):
        _check_max_parallelism(manifest, operator, max_parallelism)
    groups = range_for(subtask, parallelism, max_parallelism, deal)
    with Downloads(storage.read_file, manifest.checkpoint_id, transfers) as files:
        keyed = [handle for snapshot in snapshots for handle in snapshot.keyed]
        files.want(handle.file for handle in keyed if _parts_of(handle, groups))
        files.want(s.operator_state.file for s in snapshots if s.operator_state is not None)
        tables = []
        for snapshot in snapshots:
            found = _read_state(files, manifest.checkpoint_id, snapshot.keyed, groups)
            if snapshot.database is not None and not inherits:
                of = storage, manifest.checkpoint_id, snapshot.database, groups, max_parallelism
                tables += read_database(*of, partial(_named, found))
            tables += found
        former = [
            _read_operator_state(files, manifest.checkpoint_id, snapshot.operator_state)
            for snapshot in snapshots
        ]
    if not any(former):
        return tables, []
    if own_share:
        assert len(former) == parallelism, (operator, len(former), parallelism)
        return tables, kept(former, subtask)
    return tables, redistribute(former, parallelism)[subtask]


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


def _read_state(
    storage: FilesFrom,
    checkpoint_id: CheckpointId,
    handles: Sequence[KeyedHandle],
    groups: KeyGroupRange,
) -> list[StateTable]:
    """The rows in `groups` of the states of one former subtask, as whole tables."""
    layers: dict[str, list[StateTable]] = {}
    for handle in handles:
        parts = _parts_of(handle, groups)
        if parts:
            table = _read_keyed(storage, checkpoint_id, handle, parts)
            layers.setdefault(handle.name, []).append(table)
    return [table for found in layers.values() for table in flattened(found)]


def _named(tables: list[StateTable], name: str) -> list[StateTable]:
    return [table for table in tables if table.name == name]


def _parts_of(handle: KeyedHandle, groups: KeyGroupRange) -> list[tuple[int, int]]:
    """First row and number of rows of what a subtask with these groups needs."""
    everyone = [(first, rows) for group, first, rows in handle.groups if group == EVERY_GROUP]
    mine = rows_of(handle, groups)
    return [*everyone, *([] if mine is None else [mine])]


def rows_of(handle: KeyedHandle, groups: KeyGroupRange) -> tuple[int, int] | None:
    """First row and number of rows of the key groups in `groups`, None if there are none."""
    inside = [(first, first + rows) for group, first, rows in handle.groups if group in groups]
    if not inside:
        return None
    return inside[0][0], inside[-1][1] - inside[0][0]


def _continued(snapshot: KeyedSnapshot | None, layers: Layers) -> tuple[KeyedHandle, ...]:
    """The files of earlier checkpoints that belong to this one."""
    names = () if snapshot is None else sorted(snapshot.continued)
    return tuple(layer for name in names for layer in layers.get(name, ()))


def _write_database(
    uploads: Uploads,
    task: TaskId,
    operator: OperatorId,
    snapshot: KeyedSnapshot | None,
    files: Mapping[OperatorId, Files],
) -> DatabaseUpload | None:
    """Begin to write the files of the operator's local database, if it has one."""
    if snapshot is None or snapshot.database is None:
        return None
    name = f"{safe_name(operator)}-{task.subtask}"
    return DatabaseUpload(uploads, name, snapshot.database, files.get(operator, {}))


def _write_keyed(
    write: Write, task: TaskId, operator: OperatorId, snapshot: KeyedSnapshot | None
) -> list[tuple[Callable[..., KeyedHandle], Pending[FileHandle]]]:
    """Begin to write all tables; what makes the handles, given their files."""
    begun: list[tuple[Callable[..., KeyedHandle], Pending[FileHandle]]] = []
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
        make = partial(
            KeyedHandle,
            table.name,
            table.kind,
            groups=groups,
            metadata=dict(table.metadata),
            layer=table.layer,
        )
        begun.append((make, write(name, table.data, table.layer != "whole")))
    return begun


def _write_operator_state(
    write: Write, task: TaskId, operator: OperatorId, snapshot: OperatorStateSnapshot | None
) -> Pending[FileHandle] | None:
    tables = [] if snapshot is None else snapshot.tables()
    rows = [(table.name, table.mode, item) for table in tables for item in table.items]
    if not rows:
        return None
    columns = [list(column) for column in zip(*rows, strict=True)]
    data = pa.table(columns, schema=_OPERATOR_STATE)
    name = f"{safe_name(operator)}-{task.subtask}-operator.arrow"
    return write(name, data)


def _read_keyed(
    storage: FilesFrom,
    checkpoint_id: CheckpointId,
    handle: KeyedHandle,
    parts: Sequence[tuple[int, int]],
) -> StateTable:
    """`parts`: first row and number of rows of each."""
    data = from_ipc_file(storage, checkpoint_id, handle.file)
    for first, rows in parts:
        if first < 0 or rows < 0 or first + rows > data.num_rows:
            raise CorruptCheckpointError(
                f"{handle.file.path}: key groups at rows {first}..{first + rows}, the file has "
                f"{data.num_rows} rows"
            )
    found = pa.concat_tables([data.slice(first, rows) for first, rows in parts])
    return StateTable(handle.name, handle.kind, found, dict(handle.metadata), handle.layer)


def _read_operator_state(
    storage: FilesFrom, checkpoint_id: CheckpointId, handle: OperatorHandle | None
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
