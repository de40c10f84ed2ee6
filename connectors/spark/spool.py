"""The folder between a Spark query and a stream: whole micro-batches, each exactly once.

    columns.json               Spark's schema of the rows
    batches/000000000007/      micro-batch 7: Parquet files, and batch.json, which lists them
    .writing/                  what is not complete
    state.json                 what the query does, with a beat that counts while it lives
    taken                      the next micro-batch that the stream will take
    read/ATTEMPT/0             the first micro-batch that subtask 0 of the stream needs
    query/, query_id           Spark's own checkpoint of the query, and whose it must be

A micro-batch appears by a rename when all of it is on disk, so it is there whole or not at all; it
is known by Spark's batch id, so one that Spark runs again, because it died before its commit, is
there already and is left as it is. Micro-batches go when a checkpoint covers them, except the
newest: by it Spark's next attempt is known to be a repetition.

Both sides see the folder through their own file system: a disk of one machine, or a mounted one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...core.errors import ConfigurationError
from .durable import make_folder, sync

RUNNING: Final = "running"
ENDED: Final = "ended"
FAILED: Final = "failed"


@dataclass(frozen=True)
class SpooledBatch:
    """A micro-batch. `files`: names and rows, in order. `watermark`: Spark's event-time watermark
    (ms) while it ran, None if the query has none."""

    id: int
    files: tuple[tuple[str, int], ...]
    watermark: int | None


@dataclass(frozen=True)
class SpoolState:
    """`state` is RUNNING, ENDED or FAILED; `beat` changes while the query's process lives."""

    state: str
    beat: int
    message: str = ""


class Spool:
    """One such folder. Methods may be called from any process; each file has one writer."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        location = os.fspath(folder).removeprefix("file://")
        if "://" in location:
            raise ConfigurationError(
                f"the bridge publishes micro-batches by renaming folders, which '{folder}' cannot "
                "do atomically; give a folder of a mounted file system"
            )
        self.folder = Path(location).absolute()
        self._batches = self.folder / "batches"

    @property
    def query(self) -> Path:
        """Where Spark keeps its checkpoint of the query."""
        return self.folder / "query"

    # --- Spark's side ------------------------------------------------------------------------

    def columns(self) -> str | None:
        """Spark's schema as JSON; None before any query has written here."""
        with suppress(FileNotFoundError):
            return (self.folder / "columns.json").read_text()
        return None

    def declare(self, columns: str) -> None:
        """The columns from now on."""
        make_folder(self._batches)
        _replace(self.folder / "columns.json", columns, durable=True)

    def has(self, batch: int) -> bool:
        """Whether it is here, or was: the newest is never removed, and ids only grow."""
        return batch <= max(self._ids(), default=-1)

    def query_id(self) -> str | None:
        """Spark's id of the query that writes here; None before one has."""
        with suppress(FileNotFoundError):
            return (self.folder / "query_id").read_text()
        return None

    def belongs_to(self, query_id: str) -> None:
        _replace(self.folder / "query_id", query_id, durable=True)

    def new_place(self, batch: int) -> Path:
        """Where to write a micro-batch; empty."""
        place = self.folder / ".writing" / _name(batch)
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def publish(self, batch: int, watermark: int | None = None) -> SpooledBatch:
        """What lies at `new_place(batch)` becomes the micro-batch. Durable when it returns. Spark
        writes a file also of no rows, so without one it was written elsewhere:
        ConfigurationError."""
        import pyarrow.parquet as pq

        place = self.folder / ".writing" / _name(batch)
        found = sorted(place.glob("*.parquet"))
        if not found:
            raise ConfigurationError(
                f"Spark wrote micro-batch {batch}, but no file is in '{place}': it is not the same "
                "folder for Spark's executors and for this program"
            )
        rows = [(file.name, pq.read_metadata(file).num_rows) for file in found]
        files = tuple((name, count) for name, count in rows if count)
        text = json.dumps({"id": batch, "files": files, "watermark": watermark})
        (place / "batch.json").write_text(text)
        for file in (*found, place / "batch.json", place):
            sync(file)
        os.rename(place, self._place(batch))
        sync(self._batches)
        return SpooledBatch(batch, files, watermark)

    def say(self, state: SpoolState) -> None:
        _replace(self.folder / "state.json", json.dumps(vars(state)))

    def waiting(self) -> int:
        """How many micro-batches the stream has not taken yet."""
        taken = 0
        with suppress(FileNotFoundError, ValueError):
            taken = int((self.folder / "taken").read_text())
        return sum(batch >= taken for batch in self._ids())

    # --- the stream's side -------------------------------------------------------------------

    def state(self) -> SpoolState | None:
        """None before the query was started."""
        with suppress(FileNotFoundError, json.JSONDecodeError):
            return SpoolState(**json.loads((self.folder / "state.json").read_text()))
        return None

    def batches(self, start: int) -> list[SpooledBatch]:
        """Those with ids from `start` on, in order."""
        return [self._read(batch) for batch in self._ids() if batch >= start]

    def file(self, batch: int, name: str) -> Path:
        return self._place(batch) / name

    def take(self, batch: int) -> None:
        """All before `batch` are handed out."""
        _replace(self.folder / "taken", str(batch))

    def begin(self, reading: str) -> None:
        """An attempt to read begins, under a name that no other had; what others say of theirs
        counts no more."""
        place = self.folder / "read"
        place.mkdir(parents=True, exist_ok=True)
        for former in os.listdir(place):
            shutil.rmtree(place / former, ignore_errors=True)
        (place / reading).mkdir()

    def needs(self, start: int, reading: str, subtask: int, parallelism: int) -> None:
        """One subtask of `parallelism` in this attempt will not ask for micro-batches before
        `start`, and no attempt behind it will. What all have said so of is removed. Nothing happens
        if another attempt has begun."""
        place = self.folder / "read" / reading
        try:
            _replace(place / str(subtask), str(start))
            said = [int((place / str(one)).read_text()) for one in range(parallelism)]
        except FileNotFoundError:
            return
        self.drop(min(said))

    def drop(self, below: int) -> None:
        """Remove the micro-batches below an id, except the newest."""
        for batch in self._ids()[:-1]:
            if batch < below:
                gone = self.folder / f".gone-{_name(batch)}"
                with suppress(FileNotFoundError):
                    os.rename(self._place(batch), gone)
        for gone in self.folder.glob(".gone-*"):
            shutil.rmtree(gone, ignore_errors=True)

    def _ids(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._batches) if name.isdigit())
        except FileNotFoundError:
            return []

    def _read(self, batch: int) -> SpooledBatch:
        found: dict[str, Any] = json.loads((self._place(batch) / "batch.json").read_text())
        files: Sequence[Sequence[Any]] = found["files"]
        return SpooledBatch(
            batch, tuple((str(name), int(rows)) for name, rows in files), found["watermark"]
        )

    def _place(self, batch: int) -> Path:
        return self._batches / _name(batch)


def _name(batch: int) -> str:
    return f"{batch:012d}"


def _replace(path: Path, text: str, durable: bool = False) -> None:
    """Whole or not at all. What is not `durable` may be empty after a crash of the machine."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    if durable:
        sync(new)
    os.replace(new, path)
    if durable:
        sync(path.parent)
