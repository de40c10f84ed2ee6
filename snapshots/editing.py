"""Savepoints from tables, and from other savepoints with something changed.

`Edits` holds all state as stored tables, loaded when first touched, and `save` writes them as a
complete savepoint, one file for each state: a job restores it at any parallelism. Keys go to key
groups by the functions that the running job has (`row_tables.groups_of_keys`, `hash_columns`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..checkpoint.folder_storage import FolderStorage, folder_at
from ..checkpoint.handles import (
    FileHandle,
    KeyedHandle,
    OperatorHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from ..checkpoint.manifest import Manifest, OperatorShape, edges_in_flight
from ..checkpoint.names import check_job_id, safe_name
from ..checkpoint.snapshot_io import group_offsets, to_ipc_file
from ..core.errors import ConfigurationError, StateError
from ..core.ids import EVEN, CheckpointId, OperatorId, TaskId, VertexId
from ..engine.graph.operator_ids import uid_operator_id
from ..state.stored import StateTable
from . import keyed_rows
from .filling import Filled
from .keys import certain
from .per_group import is_per_group, spread
from .stored import MOST_PARALLELISM, OF_OPERATOR, ROW_KINDS, StoredStates

if TYPE_CHECKING:
    from .snapshot import Snapshot

_FIRST = CheckpointId(1)
"""The number of what is made of nothing."""


@dataclass
class _Operator:
    """One operator, as it will be saved. `keyed`: its states by name, None while they are as
    `source` has them."""

    shape: OperatorShape
    keyed: dict[str, StateTable | None]
    items: pa.Table
    enumerator: bytes | None
    source: tuple[StoredStates, OperatorId] | None = None


class Edits(Filled):
    """State to be saved as a savepoint. Each method changes it and returns this, so that they can
    be chained; `save` writes it, once or more often. Operators are named by uid, id or name, and
    what is not there is a StateError."""

    def __init__(self, job_name: str, job_id: str, max_parallelism: int) -> None:
        self._job = job_name, check_job_id(job_id)
        self._max_parallelism = _checked(max_parallelism)
        self._operators: dict[OperatorId, _Operator] = {}
        self._unpickle = False
        self._number = _FIRST
        """Of what is saved: that of the snapshot it was. A job counts on from it, and sinks know by
        these numbers what they have published, of which some may wait in the snapshot."""

    @classmethod
    def of(cls, snapshot: Snapshot, unpickle: bool) -> Edits:
        """All of a snapshot."""
        stored = snapshot.stored
        manifest = stored.manifest
        if edges_in_flight(manifest):
            raise StateError(
                f"'{snapshot.path}' is an unaligned checkpoint, with records in flight, which an "
                "edited state could not go on from: take a savepoint, which has none, and edit that"
            )
        most = max((one.max_parallelism for one in snapshot.operators), default=MOST_PARALLELISM)
        edits = cls(manifest.job_name, manifest.job_id, most)
        edits._unpickle = unpickle
        edits._number = manifest.checkpoint_id
        for info in snapshot.operators:
            operator = OperatorId(info.id)
            names = {part.name for part in stored.keyed_parts(operator)}
            edits._operators[operator] = _Operator(
                stored.shape(operator),
                dict.fromkeys(sorted(names)),
                stored.operator_state(operator),
                manifest.enumerators.get(operator),
                (stored, operator),
            )
        return edits

    # --- changes to what is there ---------------------------------------------------------------

    def set(
        self,
        operator: str,
        state: str,
        key: Any,
        value: Any,
        *,
        map_key: Any = keyed_rows.ALL,
        namespace: Any = None,
        stamp: int | None = None,
    ) -> Edits:
        """Give a key another value, or the first one.

        value: of a list state all elements; of a map state all entries, or, with `map_key`, the
        value of this one; of built-in aggregates a dict from column to value, of a key that is
        there those that change. namespace: the window or slice; None: of a table 0. stamp: ms that
        the state's time to live counts from; None: those there are, else now.
        """
        table = self._keyed(operator, state)
        most = self._operator(operator).shape.max_parallelism
        if table.kind in ROW_KINDS:
            changed = keyed_rows.put(table, key, value, map_key, namespace, stamp, most)
        else:
            changed = keyed_rows.put_columns(table, key, value, namespace or 0, most)
        return self._put(operator, changed)

    def remove(
        self,
        operator: str,
        state: str,
        key: Any,
        *,
        map_key: Any = keyed_rows.ALL,
        namespace: Any = keyed_rows.ALL,
    ) -> Edits:
        """Remove a key, in all namespaces or one; of a map one entry, with `map_key`. StateError if
        the state has it not."""
        table = self._keyed(operator, state)
        most = self._operator(operator).shape.max_parallelism
        return self._put(operator, keyed_rows.removed(table, key, map_key, namespace, most))

    def drop(self, operator: str, state: str | None = None) -> Edits:
        """Remove a state, by the name that `Snapshot` shows, or all of an operator: its state, and
        its place in the sources."""
        found = self._operator(operator)
        if state is None:
            del self._operators[found.shape.operator]
            return self
        names = found.items.column("name").to_pylist()
        if state in found.keyed:
            del found.keyed[state]
            return self
        if state not in names and state.removesuffix(OF_OPERATOR) in found.keyed:
            state = state.removesuffix(OF_OPERATOR)
        if state not in names:
            raise StateError(f"operator '{operator}' has no state '{state}' to drop")
        found.items = found.items.filter(pa.array([name != state for name in names], pa.bool_()))
        return self

    def rename(self, operator: str, uid: str) -> Edits:
        """Let the operator be the one with this uid: a program finds its state under that."""
        found = self._operator(operator)
        new = uid_operator_id(uid)
        if new in self._operators and new != found.shape.operator:
            raise StateError(f"an operator with the uid '{uid}' is there already: drop it first")
        moved = {}
        for one, held in self._operators.items():
            if held is found:
                held.shape = replace(held.shape, operator=new, uid=uid)
                one = new
            moved[one] = held
        self._operators = moved
        return self

    def max_parallelism(
        self, most: int, *, keys: Mapping[str, Sequence[str]] | None = None
    ) -> Edits:
        """Hash all keys anew, for jobs with this max parallelism.

        keys: state name to the columns of its key, by their stored names, for kept rows whose key
        cannot be told from the files. StateError if one is needed, and if state is of key groups
        that are halfway through something and so cannot be split.
        """
        _checked(most)
        for found in self._operators.values():
            shape = found.shape
            if shape.max_parallelism != most:
                for name in list(found.keyed):
                    table = self._loaded(found, name)
                    given = (keys or {}).get(name, ())
                    found.keyed[name] = self._rehashed(table, shape, most, given)
            parallelism = min(shape.parallelism, most)
            found.shape = replace(shape, max_parallelism=most, parallelism=parallelism, deal=EVEN)
        self._max_parallelism = most
        return self

    # --- the end --------------------------------------------------------------------------------

    def save(self, path: str) -> str:
        """Write all of it as a savepoint into a folder, which must not exist; returns its path.
        Nothing is left there if it fails. The snapshot that it began with stays as it is, and is
        not needed any more."""
        storage = folder_at(path, "path")
        if storage.filesystem.exists(storage.folder):
            raise ConfigurationError(f"save('{path}'): there is something: give a new folder")
        written: list[FileHandle] = []
        try:
            self._write(storage, written)
        except BaseException:
            storage.remove_files(self._number, written)
            with suppress(Exception):
                storage.filesystem.rmdir(storage.folder)
            raise
        return path

    def _write(self, storage: FolderStorage, written: list[FileHandle]) -> None:
        def write(name: str, data: pa.Table) -> FileHandle:
            written.append(storage.write_file(self._number, name, to_ipc_file(data)))
            return written[-1]

        subtasks = []
        for operator, found in self._operators.items():
            handles = []
            for index, name in enumerate(sorted(found.keyed)):
                table = self._loaded(found, name)
                if table.data.num_rows:
                    file_name = f"{safe_name(operator)}-0-{index}.arrow"
                    file = write(file_name, table.data)
                    groups = group_offsets(table.data)
                    handles.append(KeyedHandle(name, table.kind, file, groups, table.metadata))
            state = None
            if found.items.num_rows:
                items = found.items.drop_columns(["subtask"]).combine_chunks()
                state = OperatorHandle(write(f"{safe_name(operator)}-0-operator.arrow", items))
            if handles or state is not None:
                snapshot = OperatorSnapshot(operator, tuple(handles), state)
                task = TaskId(VertexId(operator), 0)
                subtasks.append(SubtaskSnapshot(task, (snapshot,)))
        storage.publish(self._manifest(subtasks))

    def _manifest(self, subtasks: list[SubtaskSnapshot]) -> Manifest:
        shapes = [found.shape for found in self._operators.values()]
        return Manifest(
            job_id=self._job[1],
            job_name=self._job[0],
            checkpoint_id=self._number,
            timestamp_ms=int(time.time() * 1000),
            operators=tuple(replace(shape, parallelism=1, deal=EVEN) for shape in shapes),
            subtasks=tuple(subtasks),
            enumerators={
                operator: found.enumerator
                for operator, found in self._operators.items()
                if found.enumerator is not None
            },
            savepoint=True,
        )

    # --- parts ----------------------------------------------------------------------------------

    def _operator(self, which: str) -> _Operator:
        by_uid = self._operators.get(uid_operator_id(which))
        found = self._operators.get(OperatorId(which)) or by_uid
        if found is not None:
            return found
        named = [one for one in self._operators.values() if one.shape.name == which]
        if len(named) != 1:
            known = [f"{one.shape.name} ({one.shape.operator})" for one in self._operators.values()]
            raise StateError(
                f"there is {'no' if not named else 'no one'} operator '{which}' in {known}"
            )
        return named[0]

    def _keyed(self, operator: str, state: str) -> StateTable:
        found = self._operator(operator)
        if state not in found.keyed:
            raise StateError(
                f"operator '{operator}' has no keyed state '{state}', only {sorted(found.keyed)}"
            )
        return self._loaded(found, state)

    def _loaded(self, found: _Operator, state: str) -> StateTable:
        table = found.keyed[state]
        if table is None:
            assert found.source is not None
            stored, operator = found.source
            table = stored.keyed(operator, state)
        return table

    def _put(self, operator: str, table: StateTable) -> Edits:
        self._operator(operator).keyed[table.name] = table
        return self

    def _rehashed(
        self, table: StateTable, shape: OperatorShape, most: int, given: Sequence[str]
    ) -> StateTable:
        if not table.data.num_rows:
            return table
        if is_per_group(table) and not given:
            return spread(table, shape.name, most)
        key = certain(table, shape.max_parallelism, self._unpickle, given)
        return keyed_rows.sorted_by_group(table, table.data, key.groups(most))

    def _add(self, uid: str, made: StateTable) -> None:
        operator = uid_operator_id(uid)
        found = self._operators.get(operator)
        if found is None:
            shape = OperatorShape(operator, uid, 1, self._max_parallelism, uid)
            found = self._operators[operator] = _Operator(shape, {}, _NO_ITEMS, None)
        found.keyed[made.name] = made

    def _most_of(self, uid: str) -> int:
        found = self._operators.get(uid_operator_id(uid))
        return self._max_parallelism if found is None else found.shape.max_parallelism


def _checked(most: int) -> int:
    if not 1 <= most <= MOST_PARALLELISM:
        raise ConfigurationError(f"max_parallelism must be from 1 to {MOST_PARALLELISM}, is {most}")
    return most


_NO_ITEMS = pa.schema(
    [
        ("subtask", pa.int32()),
        ("name", pa.string()),
        ("mode", pa.string()),
        ("item", pa.large_binary()),
    ]
).empty_table()
