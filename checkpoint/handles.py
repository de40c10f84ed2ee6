"""Where the pieces of a checkpoint are. JSON-able, plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.ids import OperatorId, TaskId


@dataclass(frozen=True)
class FileHandle:
    """A data file of a checkpoint. `path` is relative to the checkpoint's own folder; `inline`
    holds the bytes themselves instead, when checkpoints are kept in memory."""

    path: str
    size: int
    checksum: str
    """xxh64 of the bytes, 16 hex digits."""
    inline: bytes | None = None


@dataclass(frozen=True)
class KeyedHandle:
    """One keyed StateTable in an Arrow IPC file. `groups`: (key group, first row, rows),
    ascending."""

    name: str
    kind: str
    file: FileHandle
    groups: tuple[tuple[int, int, int], ...]
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorHandle:
    """All operator state of one operator's subtask in one Arrow IPC file (columns: name, mode,
    item)."""

    file: FileHandle


@dataclass(frozen=True)
class OperatorSnapshot:
    """One operator in one subtask."""

    operator: OperatorId
    keyed: tuple[KeyedHandle, ...] = ()
    operator_state: OperatorHandle | None = None


@dataclass(frozen=True)
class SubtaskSnapshot:
    """All operators of one task."""

    task: TaskId
    operators: tuple[OperatorSnapshot, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        files = [k.file for o in self.operators for k in o.keyed]
        files += [o.operator_state.file for o in self.operators if o.operator_state is not None]
        return sum(f.size for f in files)
