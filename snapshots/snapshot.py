"""`open`: a checkpoint or savepoint as something one can look into.

Only the files are needed: no job, no cluster, no class of the program that wrote them. The files
may come from anywhere: nothing in them is executed, unless `unpickle=True` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..checkpoint.folder_storage import open_folder
from ..checkpoint.manifest import OperatorShape
from ..core.errors import ConfigurationError, StateError
from ..core.frames import frame_of
from ..core.ids import OperatorId
from ..engine.graph.operator_ids import uid_operator_id
from .columns import readable, unpickled
from .pickles import text_of
from .stored import OF_OPERATOR, OPERATOR_KINDS, KeyedPart, StoredStates

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from .comparing import Difference
    from .editing import Edits
    from .verifying import Verified

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StateInfo:
    """A state of an operator. `kind`: what wrote it; `rows` and `bytes` of all subtasks (the bytes
    of operator state are those of all the operator's); `key_groups`: how many have rows, None for
    operator state."""

    name: str
    kind: str
    rows: int
    bytes: int
    key_groups: int | None


@dataclass(frozen=True)
class OperatorInfo:
    """An operator of the job. `uid`: None where the files do not tell it; `enumerator`: as text,
    what a source's enumerator keeps."""

    id: str
    uid: str | None
    name: str
    parallelism: int
    max_parallelism: int
    states: tuple[StateInfo, ...]
    enumerator: str | None = None

    @property
    def label(self) -> str:
        """What it is called in errors and in SQL."""
        return self.uid or self.name


class Snapshot:
    """A complete checkpoint or savepoint. Files are read when they are asked for, and every one is
    checked then: CorruptCheckpointError names what is not as it must be."""

    def __init__(self, path: str, stored: StoredStates) -> None:
        manifest = stored.manifest
        self.path = path
        self.stored = stored
        self.job_id = manifest.job_id
        self.job_name = manifest.job_name
        self.checkpoint_id = int(manifest.checkpoint_id)
        try:
            self.time = _EPOCH + timedelta(milliseconds=manifest.timestamp_ms)
        except OverflowError:
            self.time = _EPOCH
        self.savepoint = manifest.savepoint

    @cached_property
    def operators(self) -> tuple[OperatorInfo, ...]:
        """All of the job, in its order. Reads the files of operator state, which alone say what is
        in them."""
        return tuple(self._operators())

    @property
    def bytes(self) -> int:
        """Of all files of state."""
        return self.stored.manifest.size

    @property
    def sources(self) -> tuple[OperatorInfo, ...]:
        """The operators with an enumerator."""
        return tuple(one for one in self.operators if one.enumerator is not None)

    def operator(self, which: str) -> OperatorInfo:
        """By id, by uid, or by a name that only one operator has. StateError if there is none."""
        for what, wanted in (("id", which), ("id", uid_operator_id(which)), ("name", which)):
            found = [one for one in self.operators if getattr(one, what) == wanted]
            if len(found) == 1:
                return found[0]
            if found:
                raise StateError(
                    f"{self.path}: {len(found)} operators have the name '{which}': say which by "
                    f"its uid or id, of {[one.id for one in found]}"
                )
        known = [f"{one.label} ({one.id})" for one in self.operators]
        raise StateError(f"{self.path}: there is no operator '{which}', only {known}")

    def state(self, operator: str, state: str) -> StateInfo:
        """What is known of a state without reading it. StateError if there is none."""
        info = self.operator(operator)
        found = next((one for one in info.states if one.name == state), None)
        if found is None:
            raise StateError(
                f"{self.path}: operator '{info.label}' has no state '{state}', only "
                f"{[one.name for one in info.states]}"
            )
        return found

    def table(
        self,
        operator: str,
        state: str,
        *,
        raw: bool = False,
        key_groups: bool = False,
        unpickle: bool = False,
    ) -> pa.Table:
        """All rows of a state, in order of their key groups.

        Columns have their natural names (`key`, `namespace`, `map_key`, `value`, columns of keys
        and accumulators); pickled values are Arrow values if all have one shape, else stay bytes,
        with their text in `<name>_text`. raw: as they are stored. key_groups: also
        `__key_group`. unpickle: run the pickles, which is running whatever the file's writer
        wanted; the classes must be importable. Raises StateError, CorruptCheckpointError.
        """
        info, found = self.operator(operator), self.state(operator, state)
        if found.key_groups is None:
            return self._operator_table(info, state, found.kind, raw, unpickle)
        stored = self.stored.keyed(OperatorId(info.id), state)
        if raw:
            return stored.data
        return readable(stored, info.max_parallelism, key_groups, unpickle)

    def polars(self, operator: str, state: str, **options: bool) -> pl.DataFrame:
        """`table` as a polars frame."""
        return frame_of(self.table(operator, state, **options))

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, *, unpickle: bool = False
    ) -> duckdb.DuckDBPyConnection:
        """A connection with every state as a view of the schema `state` (see `sql.view_names`).
        `connection`: one to use; None: a new one in memory."""
        from .sql import connected

        return connected(self, connection, None, unpickle)

    def sql(self, query: str, *, unpickle: bool = False) -> pa.Table:
        """The result of a DuckDB query over `state.<name>`. Reads the states whose names are in
        the query. StateError for a query that DuckDB refuses."""
        from .sql import queried

        return queried(self, query, unpickle)

    def in_flight(self) -> pa.Table:
        """What was on its way between tasks when an unaligned checkpoint was taken, a row for each
        thing that waited; `checkpoint.in_flight` tells what the columns are. Empty for others."""
        return self.stored.in_flight()

    def diff(self, other: Snapshot | str) -> Difference:
        """What `other` (or the snapshot at that path) has otherwise."""
        from .comparing import compared

        return compared(self, open(other) if isinstance(other, str) else other)

    def verify(self) -> Verified:
        """Read every file, and hold it against the manifest and the keys in it."""
        from .verifying import verified

        return verified(self)

    def edit(self, *, unpickle: bool = False) -> Edits:
        """The beginning of another savepoint: this one's state, to be changed and saved elsewhere.
        Nothing here is ever written to. `unpickle`: as in `table`, where keys need it."""
        from .editing import Edits

        return Edits.of(self, unpickle)

    def __repr__(self) -> str:
        what = "savepoint" if self.savepoint else f"checkpoint {self.checkpoint_id}"
        return f"<{what} of job '{self.job_name}' at {self.path}>"

    def _operator_table(
        self, info: OperatorInfo, state: str, kind: str, raw: bool, unpickle: bool
    ) -> pa.Table:
        data = self.stored.operator_state(OperatorId(info.id))
        names = data.column("name").to_pylist()
        wanted = state.removesuffix(OF_OPERATOR)
        data = data.filter(pa.array([name == wanted for name in names], pa.bool_())).drop_columns(
            ["name"]
        )
        if raw:
            return data
        column = unpickled("item", data.column("item").to_pylist(), unpickle)
        item = column["item"]
        if kind == "broadcast" and pa.types.is_struct(item.type) and item.type.num_fields == 2:
            return pa.table({"map_key": item.field(0), "value": item.field(1)})
        subtasks = {} if kind == "broadcast" else {"subtask": data.column("subtask")}
        return pa.table({**subtasks, **column})

    def _operators(self) -> Iterable[OperatorInfo]:
        manifest = self.stored.manifest
        known = {shape.operator for shape in manifest.operators}
        for operator in manifest.enumerators.keys() - known:
            self.stored.shape(operator)  # which it lacks
        for subtask in manifest.subtasks:
            for snapshot in subtask.operators:
                self.stored.shape(snapshot.operator)
        for shape in manifest.operators:
            enumerator = manifest.enumerators.get(shape.operator)
            yield OperatorInfo(
                shape.operator,
                _uid(shape),
                shape.name,
                shape.parallelism,
                shape.max_parallelism,
                (*self._keyed(shape.operator), *self._operator_states(shape.operator)),
                None if enumerator is None else text_of(enumerator),
            )

    def _keyed(self, operator: OperatorId) -> Iterable[StateInfo]:
        parts: dict[str, list[KeyedPart]] = {}
        for part in self.stored.keyed_parts(operator):
            parts.setdefault(part.name, []).append(part)
        for name, found in sorted(parts.items()):
            counted = [self.stored.counted(part) for part in found]
            groups = set[int]().union(*[of_part for _, of_part in counted])
            size = sum(file.size for file in {file for part in found for file in part.files})
            rows = sum(number for number, _ in counted)
            if not rows and not any(part.handles for part in found):
                continue  # as of states without rows that lie in memory
            yield StateInfo(name, found[0].kind, rows, size, len(groups))

    def _operator_states(self, operator: OperatorId) -> Iterable[StateInfo]:
        size = sum(handle.file.size for _, handle in self.stored.operator_parts(operator))
        if not size:
            return
        data = self.stored.operator_state(operator)
        rows: dict[tuple[str, str], int] = {}
        modes = data.column("mode").to_pylist()
        for one in zip(data.column("name").to_pylist(), modes, strict=True):
            rows[one] = rows.get(one, 0) + 1
        keyed = {part.name for part in self.stored.keyed_parts(operator)}
        for (name, mode), count in sorted(rows.items()):
            shown = name + OF_OPERATOR if name in keyed else name
            yield StateInfo(shown, OPERATOR_KINDS[mode], count, size, None)


def _uid(shape: OperatorShape) -> str | None:
    """The operator's uid: its id is that of it, else it is none."""
    for uid in (shape.uid, shape.name):
        if uid is not None and uid_operator_id(uid) == shape.operator:
            return uid
    return None


def open(path: str) -> Snapshot:
    """The checkpoint or savepoint at a path or fsspec URL; at a job's folder, its newest that is
    complete. ConfigurationError if there is none; CheckpointError for what cannot be read."""
    location = str(path)
    if not location:
        raise ConfigurationError("open('') names no checkpoint: give the folder of one")
    storage, manifest = open_folder(location, setting="path")
    return Snapshot(location, StoredStates(storage, manifest, location))
