"""What was recorded of one subtask of an operator, found and read.

Nothing is unpickled here but what `shipped` and batches of objects ask for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..checkpoint.folder_storage import FolderStorage
from ..checkpoint.in_flight import Item
from ..checkpoint.recordings import (
    FAILED,
    FORMAT,
    OPERATOR,
    PICKLE,
    Part,
    RecordingFolder,
    has_manifest,
    recorded_subtasks,
    said,
)
from ..core.errors import (
    CheckpointFormatError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from ..core.failure_text import described


class Row(NamedTuple):
    """As of `engine.task.recorded_operator`."""

    kind: str
    port: int
    number: int
    data: Any
    stamps: Any

    @property
    def item(self) -> Item:
        """Of a batch."""
        kind: Any = self.kind
        return Item(kind, self.number, self.data, self.stamps)


@dataclass(frozen=True)
class Recorded:
    """One attempt of one subtask. `about`: what it says of itself; `failure`: of its end."""

    folder: RecordingFolder
    about: dict[str, Any]
    failure: dict[str, Any] | None

    @property
    def operator(self) -> str:
        """As people call it."""
        return str(self.about["uid"] or self.about["name"])

    @property
    def failed(self) -> bool:
        """Whether the operator itself did."""
        return self.failure is not None and bool(self.failure.get("own"))

    def is_called(self, name: str) -> bool:
        return name in (self.about["uid"], self.about["name"], self.about["operator"])

    def shipped(self) -> dict[str, Any]:
        """The operator as it was sent to the task, and the job's configuration. Runs code of
        whoever wrote it. SerializationError."""
        data = self.folder.get(PICKLE)
        try:
            found: dict[str, Any] = pickle.loads(data)
        except Exception as error:
            module = f" '{error.name}'" if isinstance(error, ModuleNotFoundError) else ""
            raise SerializationError(
                f"operator '{self.operator}' cannot be made of its recording "
                f"({described(error)}): what it imports{module} must be importable here, with the "
                f"same version of strom and of Python ({self.about['python']}); or build it from "
                "the program (`strom replay --program`, `replay(graph=...)`)"
            ) from error
        return found


def find(
    location: str,
    operator: str | None = None,
    subtask: int | None = None,
    attempt: int | None = None,
) -> Recorded:
    """What is meant at a path or URL: of the newest job there, and if the rest is not said, what
    failed. ConfigurationError, with what there is, if that is not one."""
    found = list(_all(location))
    if not found:
        raise ConfigurationError(f"'{location}': nothing is recorded there")
    newest = max(found, key=lambda one: one.about["started_ms"]).about["job"]["id"]
    found = [one for one in found if one.about["job"]["id"] == newest]
    found = _narrowed(found, operator)
    if subtask is not None:
        there = sorted({one.about["subtask"] for one in found})
        found = [one for one in found if one.about["subtask"] == subtask]
        if not found:
            raise ConfigurationError(f"'{location}': there is no subtask {subtask}, but {there}")
    if attempt is not None:
        there = sorted({one.about["attempt"] for one in found})
        found = [one for one in found if one.about["attempt"] == attempt]
        if not found:
            raise ConfigurationError(f"'{location}': there is no attempt {attempt}, but {there}")
    failed = [one for one in found if one.failed]
    found = failed or found
    last = max(one.about["attempt"] for one in found)
    found = [one for one in found if one.about["attempt"] == last]
    operators = sorted({one.operator for one in found})
    if len(operators) > 1:
        raise ConfigurationError(f"'{location}': say which operator: {', '.join(operators)}")
    if len(found) > 1 and not failed:
        subtasks = ", ".join(str(one.about["subtask"]) for one in found)
        raise ConfigurationError(f"'{location}': none failed; say which subtask: {subtasks}")
    return min(found, key=lambda one: one.about["subtask"])


def _narrowed(found: list[Recorded], operator: str | None) -> list[Recorded]:
    if operator is None:
        return found
    chosen = [one for one in found if one.is_called(operator)]
    if not chosen:
        there = ", ".join(sorted({one.operator for one in found}))
        raise ConfigurationError(f"operator '{operator}' is not recorded there: there is {there}")
    return chosen


def _all(location: str) -> Iterator[Recorded]:
    for subtask, _ in recorded_subtasks(location):
        for number in subtask.attempts():
            folder = subtask.attempt(number)
            names = folder.names()
            if OPERATOR not in names:
                continue  # its task had ended before that
            about = said(folder, OPERATOR)
            if about.get("format") != FORMAT:
                raise CheckpointFormatError(
                    f"{folder.folder}: recorded in format {about.get('format')}, this strom reads "
                    f"format {FORMAT}"
                )
            yield Recorded(folder, about, said(folder, FAILED) if FAILED in names else None)


@dataclass
class Tail:
    """From a base on. `begin`: what was known besides the state. `notes`: what is missing, known
    when all rows were read."""

    checkpoint_id: int
    state: FolderStorage
    begin: dict[str, Any]
    parts: list[Part]
    folder: RecordingFolder
    notes: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """Behind `begin`, in their order, part by part."""
        last = Row("", 0, 0, None, None)
        for part in self.parts:
            try:
                table = self.folder.read_part(part)
            except CorruptCheckpointError as error:
                if part is not self.parts[-1]:
                    raise
                self.notes.append(f"the last part is torn, and left out ({error})")
                return
            for row in _rows(table):
                if row.kind == "broken":
                    self.notes.append(f"recorded up to here only: {bytes(row.data).decode()}")
                    return
                last = row
                yield row
        if last.kind != "closed":
            self.notes.append("the task did not come to write the end of it")


def tail(recorded: Recorded) -> Tail:
    """All that there is since the last complete checkpoint. CorruptCheckpointError."""
    folder = recorded.folder
    bases = [one for one in folder.bases() if has_manifest(folder.base(one))]
    parts = folder.parts()
    missing = ""
    for base in bases:
        chain = [part for part in parts if part.base >= base]
        numbers = [part.number for part in chain]
        if not chain:
            continue
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            absent = sorted({*range(numbers[0], numbers[-1])} - {*numbers})
            missing = f": parts {absent} are missing"
            continue
        first = next(_rows(folder.read_part(chain[0])))
        if first.kind == "begin":
            return Tail(first.number, folder.base(base), _begin(first), chain, folder)
    raise CorruptCheckpointError(
        f"{folder.folder}: there is no state with all that came behind it{missing}"
    )


def _begin(row: Row) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(bytes(row.data))
    return found


def _rows(table: Any) -> Iterator[Row]:
    kinds, ports, numbers = (table.column(name).to_pylist() for name in ("kind", "port", "number"))
    contents = zip(table.column("data"), table.column("stamps"), strict=True)
    for kind, port, number, (data, stamps) in zip(kinds, ports, numbers, contents, strict=True):
        yield Row(kind, port, number, data.as_buffer(), stamps.as_buffer())
