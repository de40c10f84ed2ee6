"""What the files of a snapshot hold, read and checked: the one place that knows of handles.

A file's checksum only says that it is the file its writer meant. Whoever can write the manifest can
write that, too: so what is in a file is validated before anything touches it, and an error names
the file, or operator and state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from ..checkpoint import in_flight
from ..checkpoint.databases import read_database
from ..checkpoint.handles import (
    DatabaseHandle,
    FileHandle,
    InFlightHandle,
    KeyedHandle,
    OperatorHandle,
)
from ..checkpoint.layers import flattened
from ..checkpoint.manifest import Manifest, OperatorShape
from ..checkpoint.snapshot_io import from_ipc_file, group_offsets
from ..checkpoint.storage import CheckpointStorage
from ..core.arrays import numpy_of
from ..core.errors import CorruptCheckpointError, StateError
from ..core.ids import KeyGroupRange, OperatorId
from ..state.carry import join
from ..state.encoding import ARROW_TYPES
from ..state.increments import BESIDE, EVERY_GROUP, IDENTITY, SCOPE
from ..state.stored import KEY_GROUP, StateTable

MOST_PARALLELISM: Final = 1 << 15

_OF_LAYERS: Final = (IDENTITY, SCOPE)
"""Metadata of deltas, and of no column."""

ROW_KINDS: Final = ("value", "list", "map", "reducing", "aggregating")
"""Of keyed state of the row face."""

OF_OPERATOR: Final = " (operator)"
"""Behind the name of an operator state, where a keyed state has the same name."""

OPERATOR_KINDS: Final = {"split": "operator list", "union": "union list", "broadcast": "broadcast"}

_OPERATOR_STATE: Final = pa.schema(
    [("name", pa.string()), ("mode", pa.string()), ("item", pa.large_binary())]
)


_EVERY: Final = KeyGroupRange(0, 0xFFFF)
"""What a place in a database can name, also where it may not."""

_NO_ROWS: Final = pa.table({KEY_GROUP: pa.array([], pa.int32())})


@dataclass(frozen=True)
class KeyedPart:
    """One keyed state of one subtask, and where it is: the handles of its name, the oldest layer
    first, and the local database in which entries of it lie."""

    operator: OperatorId
    subtask: int
    name: str
    kind: str
    handles: tuple[KeyedHandle, ...]
    database: DatabaseHandle | None = None

    @property
    def groups(self) -> list[int]:
        """The key groups that it has rows of; of those in a database nothing is told."""
        every = {group for handle in self.handles for group, _, _ in handle.groups}
        return sorted(every - {EVERY_GROUP})

    @property
    def rows(self) -> int:
        """That the manifest tells of."""
        return sum(rows for handle in self.handles for _, _, rows in handle.groups)

    @property
    def files(self) -> tuple[FileHandle, ...]:
        """Those of a database are of all states in it."""
        mine = tuple(handle.file for handle in self.handles)
        return mine if self.database is None else (*mine, *self.database.all_files)


class StoredStates:
    """All state in a snapshot. Reads files when asked."""

    def __init__(self, storage: CheckpointStorage, manifest: Manifest, where: str) -> None:
        self.manifest = manifest
        self.where = where
        self._storage = storage
        self._read_databases: dict[tuple[OperatorId, int], list[StateTable]] = {}
        """The one that was read last."""
        for shape in manifest.operators:
            if not 1 <= shape.parallelism <= shape.max_parallelism <= MOST_PARALLELISM:
                raise CorruptCheckpointError(
                    f"{where}: operator '{shape.operator}' has parallelism {shape.parallelism} of "
                    f"at most {shape.max_parallelism}, expected 1 to {MOST_PARALLELISM}"
                )

    def shape(self, operator: OperatorId) -> OperatorShape:
        """How the operator ran. CorruptCheckpointError if it has state and no shape."""
        shape = self.manifest.shape(operator)
        if shape is None:
            raise CorruptCheckpointError(
                f"{self.where}: operator '{operator}' has state but no shape"
            )
        return shape

    def keyed_parts(self, operator: OperatorId, state: str | None = None) -> Iterator[KeyedPart]:
        """The operator's keyed states, in order of subtasks."""
        for subtask, snapshot in enumerate(self.manifest.snapshots(operator)):
            handles: dict[str, list[KeyedHandle]] = {}
            for handle in snapshot.keyed:
                handles.setdefault(handle.name, []).append(handle)
            kinds = {name: found[0].kind for name, found in handles.items()}
            database = snapshot.database
            stored = () if database is None else database.states
            kinds |= {one.name: one.kind for one in stored if one.name not in kinds}
            within = {one.name for one in stored}
            for name, kind in kinds.items():
                if state is None or name == state:
                    found = tuple(handles.get(name, ()))
                    below = database if name in within else None
                    yield KeyedPart(operator, subtask, name, kind, found, below)

    def part(self, part: KeyedPart) -> StateTable:
        """One part, whole: a base and the deltas over it put together, and what lies in a
        database. A part of a database that has no entries at all is a table without rows."""
        layers = [self._table(part, handle) for handle in part.handles]
        below = [] if part.database is None else self._in_database(part, part.database)
        if len(layers) == 1 and not below and layers[0].layer == "whole":
            return layers[0]
        try:
            found = [*below, *flattened(layers)]
            if not found and not layers:
                return StateTable(part.name, part.kind, _NO_ROWS)
            if not found:  # all of it has been removed
                there = [name for name in BESIDE if name in layers[0].data.column_names]
                data = layers[0].data.slice(0, 0).drop_columns(there)
                metadata = {k: v for k, v in layers[0].metadata.items() if k not in _OF_LAYERS}
                return StateTable(part.name, part.kind, data, metadata)
            return join(found)
        except (pa.ArrowException, StateError, LookupError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                f"{self.where}: the layers of state '{part.name}' of operator '{part.operator}', "
                f"subtask {part.subtask}, do not fit each other: {error}"
            ) from error

    def _in_database(self, part: KeyedPart, database: DatabaseHandle) -> list[StateTable]:
        """What lies in a database, but for what the layers have."""
        most = self.shape(part.operator).max_parallelism
        key = (part.operator, part.subtask)
        if key not in self._read_databases:
            of = self._storage, self.manifest.checkpoint_id, database, _EVERY, most
            found = read_database(*of, partial(self._above, part))
            self._read_databases = {key: found}  # the next parts are of the same one
        tables = [one for one in self._read_databases[key] if one.name == part.name]
        for table in tables:
            groups = numpy_of(table.data.column(KEY_GROUP))
            if groups[-1] >= most:
                raise CorruptCheckpointError(
                    f"{self.where}: state '{part.name}' of operator '{part.operator}', subtask "
                    f"{part.subtask}: key group {groups[-1]} is not within 0 to {most - 1}"
                )
        return tables

    def _above(self, part: KeyedPart, name: str) -> list[StateTable]:
        """What the layers hold of any state of this part's operator and subtask."""
        parts = self.keyed_parts(part.operator, name)
        handles = [h for one in parts if one.subtask == part.subtask for h in one.handles]
        try:
            return flattened([self._table(part, handle) for handle in handles])
        except (pa.ArrowException, StateError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, CorruptCheckpointError):
                raise
            raise CorruptCheckpointError(
                f"{self.where}: the layers of state '{name}' of operator '{part.operator}', "
                f"subtask {part.subtask}, do not fit each other: {error}"
            ) from error

    def counted(self, part: KeyedPart) -> tuple[int, set[int]]:
        """Rows and key groups of a part: the manifest tells them, but for layers and databases,
        which are read."""
        if part.database is None and all(handle.layer == "whole" for handle in part.handles):
            return part.rows, set(part.groups)
        table = self.part(part)
        return table.data.num_rows, set(table.data.column(KEY_GROUP).to_pylist())

    def _table(self, part: KeyedPart, handle: KeyedHandle) -> StateTable:
        """What a handle tells of, validated: sorted by key group, with the rows it says."""
        data = self._read(handle.file)
        place = f"{self.where}/{handle.file.path}"
        try:
            offsets = group_offsets(data)
        except (StateError, KeyError) as error:
            raise CorruptCheckpointError(f"{place}: {error}") from error
        if offsets != handle.groups:
            raise CorruptCheckpointError(
                f"{place}: the rows of its key groups are not those of the manifest, which "
                f"has {_few(handle.groups)} and the file {_few(offsets)}"
            )
        most = self.shape(part.operator).max_parallelism
        groups = numpy_of(data.column(KEY_GROUP)) if data.num_rows else np.zeros(1, np.int32)
        least = EVERY_GROUP if handle.layer == "delta" else 0
        if groups[0] < least or groups[-1] >= most:
            raise CorruptCheckpointError(
                f"{place}: key groups {groups[0]} to {groups[-1]} are not within 0 to {most - 1}"
            )
        _check_encodings(handle, data, place)
        return StateTable(handle.name, handle.kind, data, dict(handle.metadata), handle.layer)

    def keyed(self, operator: OperatorId, state: str) -> StateTable:
        """All parts of a keyed state as one table. StateError if there is none."""
        tables = [self.part(part) for part in self.keyed_parts(operator, state)]
        tables = [table for table in tables if table.data is not _NO_ROWS] or tables[:1]
        if not tables:
            raise StateError(f"{self.where}: operator '{operator}' has no keyed state '{state}'")
        if len({table.kind for table in tables}) > 1 or any(
            table.metadata.keys() != tables[0].metadata.keys() for table in tables
        ):
            raise CorruptCheckpointError(
                f"{self.where}: state '{state}' of operator '{operator}' is of several kinds"
            )
        return join([table for table in tables if table.data.num_rows] or tables[:1])

    def operator_parts(self, operator: OperatorId) -> Iterator[tuple[int, OperatorHandle]]:
        """The files of operator state, in order of subtasks."""
        for subtask, snapshot in enumerate(self.manifest.snapshots(operator)):
            if snapshot.operator_state is not None:
                yield subtask, snapshot.operator_state

    def operator_state(self, operator: OperatorId) -> pa.Table:
        """All of the operator's: subtask, name, mode, item."""
        parts = []
        for subtask, handle in self.operator_parts(operator):
            data = self._read(handle.file)
            if data.schema != _OPERATOR_STATE:
                raise CorruptCheckpointError(
                    f"{self.where}/{handle.file.path}: expected columns {_OPERATOR_STATE.names} of "
                    f"operator state, found {data.schema.names}"
                )
            modes = set(data.column("mode").to_pylist())
            if any(column.null_count for column in data.columns) or modes - set(OPERATOR_KINDS):
                raise CorruptCheckpointError(
                    f"{self.where}/{handle.file.path}: nulls in operator state, or unknown modes "
                    f"in {sorted(map(str, modes))}"
                )
            subtasks = pa.array(np.full(data.num_rows, subtask, np.int32))
            parts.append(data.add_column(0, "subtask", subtasks))
        schema = pa.schema([("subtask", pa.int32()), *_OPERATOR_STATE])
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def in_flight_handles(self) -> Iterator[InFlightHandle]:
        """The files of what was on its way, in order of tasks."""
        for subtask in self.manifest.subtasks:
            if subtask.in_flight is not None:
                yield subtask.in_flight

    def in_flight_of(self, handle: InFlightHandle) -> pa.Table:
        """What one of them holds."""
        data = self._read(handle.file)
        if data.schema != in_flight.SCHEMA:
            raise CorruptCheckpointError(
                f"{self.where}/{handle.file.path}: expected columns {in_flight.SCHEMA.names} of "
                f"records in flight, found {data.schema.names}"
            )
        return data

    def in_flight(self) -> pa.Table:
        """All that was on its way."""
        parts = [self.in_flight_of(handle) for handle in self.in_flight_handles()]
        return (
            pa.concat_tables(parts).unify_dictionaries()
            if parts
            else in_flight.SCHEMA.empty_table()
        )

    def _read(self, handle: FileHandle) -> pa.Table:
        data = from_ipc_file(self._storage, self.manifest.checkpoint_id, handle)
        try:
            data.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise CorruptCheckpointError(f"{self.where}/{handle.path}: {error}") from error
        names = data.column_names
        if len(set(names)) < len(names):
            raise CorruptCheckpointError(f"{self.where}/{handle.path}: columns twice in {names}")
        return data


def _check_encodings(handle: KeyedHandle, data: pa.Table, place: str) -> None:
    """That columns of Python values have the types that their encodings say."""
    if handle.kind not in (*ROW_KINDS, "timers"):
        return
    wanted = {"namespace", "key"} | ({"value"} if handle.kind in ROW_KINDS else set())
    wanted |= {"map_key"} if handle.kind == "map" else set()
    if not wanted <= handle.metadata.keys():
        raise CorruptCheckpointError(
            f"{place}: no encoding is recorded for {sorted(wanted - handle.metadata.keys())}"
        )
    encodings = {k: v for k, v in handle.metadata.items() if k not in _OF_LAYERS}
    for column, encoding in encodings.items():
        at = data.schema.get_field_index(column)
        if at < 0 or data.schema.types[at] != ARROW_TYPES.get(encoding):
            found = "is not there" if at < 0 else f"is {data.schema.types[at]}"
            raise CorruptCheckpointError(f"{place}: column '{column}' of '{encoding}' {found}")


def _few(groups: tuple[tuple[int, int, int], ...]) -> str:
    shown = ", ".join(map(str, groups[:3]))
    return f"[{shown}{', ...' if len(groups) > 3 else ''}] ({len(groups)} groups)"
