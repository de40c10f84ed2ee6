"""Where the pieces of a checkpoint are. JSON-able, plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.ids import OperatorId, TaskId
from ..state.increments import Layer
from ..state.stored_files import StoredState


@dataclass(frozen=True)
class FileHandle:
    """A data file of a checkpoint. `path` is relative to the checkpoint's own folder, or the name
    of a file that several checkpoints of the job share (`shared_files`); `inline` holds the bytes
    themselves instead, when checkpoints are kept in memory. `offset`: where its bytes begin in a
    file that holds those of several handles (`packing`); None: it is all of the file."""

    path: str
    size: int
    checksum: str
    """xxh64 of the bytes, 16 hex digits."""
    inline: bytes | None = None
    shared: bool = False
    offset: int | None = None

    @property
    def end(self) -> int:
        """The least size of the file at `path`."""
        return (self.offset or 0) + self.size


@dataclass(frozen=True)
class KeyedHandle:
    """One keyed StateTable in an Arrow IPC file. `groups`: (key group, first row, rows),
    ascending. Those of one name in one subtask are its layers, the oldest first: one that is whole,
    or at most one base and deltas over it (`state.increments`)."""

    name: str
    kind: str
    file: FileHandle
    groups: tuple[tuple[int, int, int], ...]
    metadata: dict[str, str] = field(default_factory=dict)
    layer: Layer = "whole"


@dataclass(frozen=True)
class OperatorHandle:
    """All operator state of one operator's subtask in one Arrow IPC file (columns: name, mode,
    item)."""

    file: FileHandle


@dataclass(frozen=True)
class DatabaseHandle:
    """The local database of one operator's subtask: its files by the names that they have there,
    and the states of which entries lie in it. What the keyed tables hold of a key counts over what
    lies in it; `hidden`: an Arrow IPC file of one column, the places of such entries."""

    files: tuple[tuple[str, FileHandle], ...]
    states: tuple[StoredState, ...]
    hidden: FileHandle | None = None

    @property
    def all_files(self) -> tuple[FileHandle, ...]:
        more = () if self.hidden is None else (self.hidden,)
        return (*(file for _, file in self.files), *more)


@dataclass(frozen=True)
class OperatorSnapshot:
    """One operator in one subtask."""

    operator: OperatorId
    keyed: tuple[KeyedHandle, ...] = ()
    operator_state: OperatorHandle | None = None
    database: DatabaseHandle | None = None

    @property
    def files(self) -> tuple[FileHandle, ...]:
        """Every data file."""
        files = [keyed.file for keyed in self.keyed]
        if self.operator_state is not None:
            files.append(self.operator_state.file)
        if self.database is not None:
            files += self.database.all_files
        return tuple(files)


@dataclass(frozen=True)
class InFlightHandle:
    """What was on its way to and from one task, in one Arrow IPC file (`in_flight`). `edges`: the
    names of the edges on which it was."""

    file: FileHandle
    edges: tuple[str, ...]


@dataclass(frozen=True)
class SubtaskSnapshot:
    """All operators of one task, and what was on its way to and from it."""

    task: TaskId
    operators: tuple[OperatorSnapshot, ...] = ()
    in_flight: InFlightHandle | None = None

    @property
    def files(self) -> tuple[FileHandle, ...]:
        """Every data file."""
        files = [file for operator in self.operators for file in operator.files]
        if self.in_flight is not None:
            files.append(self.in_flight.file)
        return tuple(files)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)
