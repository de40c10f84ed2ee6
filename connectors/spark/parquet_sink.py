"""An exactly-once sink: Spark writes Parquet, a checkpoint's completion publishes it.

    before: <path>/.staging/<job>-<operator>/<subtask>/<checkpoint>/<attempt>/
    after:  <path>/[column=value/]part-<job>-<operator>-<subtask>-<checkpoint>-<index>.parquet

Readers (Spark, pyarrow, pandas, DuckDB's globs) skip names that begin with a dot. A file is
published by an atomic rename to a name that depends only on what it holds, so publishing again
finds it there.

Leftovers. A dead attempt may leave staged files. A restored checkpoint's committables are dealt out
one by one: the files of one folder to several subtasks, and none of them knows what the others were
given. So publishing removes a folder only when no file is left in it, and a subtask that recovers
removes nothing else, unless it is alone and was given all. Once a checkpoint of this attempt is
complete, every subtask has recovered; what older attempts staged then belongs to nobody. Former
subtasks i, i + p, i + 2p, ... are looked after by subtask i of p.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ...api.connectors.base import (
    OutputClaim,
    PreparedCommit,
    Sink,
    SinkWriter,
    WriterContext,
)
from ...api.types.type_info import schema_of
from ...core.batch import Batch
from ...core.errors import ConfigurationError, OperatorError
from ..files.owners import Owners, Ownership
from .blocks import Blocks, check_folders
from .calls import GatewayCall
from .durable import make_folder, sync
from .options import SparkOptions, require_spark

STAGING: Final = ".staging"

FILES: Final = "part-*.parquet"
"""What Spark calls the files that hold rows."""


@dataclass(frozen=True)
class StagedFile:
    """A committable: rename `staged` to `final`; both are relative to the sink's folder."""

    checkpoint_id: int
    staged: str
    final: str


class SparkParquetSink(Sink):
    """Writes to the folder `path`, which tasks and Spark's executors must share (one machine's
    disk, or a mounted file system): publishing is a rename.

    `partition_by`: columns that become folders. `rows_per_file`: a file that has so many rows is
    closed and a next one begun; None: a file for each checkpoint, subtask and partition. `schema`:
    needed when the stream's records are Python objects without a declared type. A block is handed
    to the object store when it reaches `block_bytes`, so a subtask keeps no more than that in its
    own memory. `take_over`: as `FileSink` has it."""

    revocable = True

    def __init__(
        self,
        path: str,
        partition_by: str | Sequence[str] | None = None,
        *,
        schema: Any = None,
        rows_per_file: int | None = None,
        block_bytes: int = 32 << 20,
        options: SparkOptions | None = None,
        take_over: bool = False,
    ) -> None:
        require_spark()
        location = str(path).removeprefix("file://")
        if "://" in location:
            raise ConfigurationError(
                f"SparkParquetSink publishes by renaming files, which '{path}' cannot do "
                "atomically; write to a folder of a mounted file system"
            )
        self.path = os.path.abspath(location)
        names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
        self.partition_by = names
        if rows_per_file is not None and rows_per_file < 1:
            raise ConfigurationError(f"rows_per_file must be at least 1, is {rows_per_file}")
        self.rows_per_file = rows_per_file or 0
        self.schema = schema_of(schema)
        self.block_bytes = block_bytes
        self.options = options
        self._asked = take_over

    def create_writer(self, context: WriterContext) -> ParquetWriter:
        return ParquetWriter(self, context)

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        return self.owners().take(claim, self._asked, takes_back=True)

    def release(self, claim: OutputClaim, status: str) -> None:
        self.owners().release(claim, status)

    def owners(self) -> Owners:
        return Owners(self.path, None, type(self).__name__, _published_name)


class ParquetWriter(SinkWriter):
    """One subtask's writer."""

    def __init__(self, sink: SparkParquetSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._root = Path(sink.path)
        self._name = f"{_safe(context.job_id)}-{_safe(context.operator_id)}"
        self._ownership = Ownership(sink.owners(), context)
        self._blocks = Blocks(sink.schema, sink.block_bytes, self._error, self._check)
        """Rows since the last prepare."""
        self._sweep_due = context.attempt > 0
        """Whether leftovers of dead attempts may exist that were not yet removed."""

    def write(self, batch: Batch) -> None:
        self._blocks.add(batch)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        blocks = self._blocks.take()
        if not blocks:
            return ()
        return partial(self._stage, checkpoint_id, blocks)

    def commit(self, committables: Sequence[StagedFile]) -> None:
        self._publish(committables)
        if self._sweep_due:
            self._sweep()

    def recover(self, committables: Sequence[StagedFile]) -> None:
        self._publish(committables)
        if self._context.parallelism == 1:
            self._sweep()

    def revoke(self, after: int) -> None:
        """Remove the published files of later checkpoints that former subtasks of this one's share
        wrote."""
        mine = re.compile(rf"part-{re.escape(self._name)}-(\d+)-(\d+)-\d+\.parquet")
        parallelism, subtask = self._context.parallelism, self._context.subtask
        for file in _files(self._root):
            match = mine.fullmatch(file.name)
            if match and int(match[1]) % parallelism == subtask and int(match[2]) > after:
                file.unlink(missing_ok=True)
                sync(file.parent)

    def close(self) -> None:
        self._blocks.clear()

    @property
    def _staging(self) -> Path:
        return self._root / STAGING / self._name

    def _stage(self, checkpoint_id: int, blocks: list[Any]) -> Sequence[StagedFile]:
        """Runs beside the task's thread; `blocks` is this call's own."""
        context = self._context
        folder = self._staging / str(context.subtask) / str(checkpoint_id) / str(context.attempt)
        if not self._root.exists():
            make_folder(self._root)
        folder.parent.mkdir(parents=True, exist_ok=True)
        call = GatewayCall(
            "write",
            blocks,
            self._blocks.schema,
            f"file://{folder}",
            self._sink.partition_by,
            self._sink.rows_per_file,
            options=self._sink.options,
            operator=context.operator,
            subtask=context.subtask,
        )
        call.wait()
        blocks.clear()
        files = sorted(folder.rglob(FILES))
        if not files:
            raise self._error(
                f"Spark wrote checkpoint {checkpoint_id}, but no file is in its staging folder: "
                f"'{self._sink.path}' is not the same folder for the tasks and for Spark"
            )
        folders = {p for f in files for p in f.parents if p.is_relative_to(self._root)}
        for path in [*files, *folders]:
            sync(path)
        return [self._committable(checkpoint_id, folder, f, i) for i, f in enumerate(files)]

    def _committable(self, checkpoint_id: int, folder: Path, file: Path, index: int) -> StagedFile:
        name = f"part-{self._name}-{self._context.subtask:05d}-{checkpoint_id:08d}-{index:04d}"
        final = file.relative_to(folder).parent / f"{name}.parquet"
        return StagedFile(checkpoint_id, str(file.relative_to(self._root)), str(final))

    def _publish(self, committables: Sequence[StagedFile]) -> None:
        """Durable when it returns."""
        for item in committables:
            self._move(item)
        for place in sorted({p for c in committables for p in Path(c.final).parents}):
            sync(self._root / place)
        if committables:
            self._ownership.check([str(self._root / c.final) for c in committables])
        for staged in {self._root / Path(*Path(c.staged).parts[:5]) for c in committables}:
            if not any(_files(staged)):
                self._remove(staged)

    def _move(self, item: StagedFile) -> None:
        staged, final = self._root / item.staged, self._root / item.final
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(staged, final)
        except FileNotFoundError:
            if not final.exists():
                self._ownership.check(())  # who was fenced is told that
                raise self._error(
                    f"checkpoint {item.checkpoint_id} refers to a staged file that is gone and was "
                    f"never published: '{item.staged}'"
                ) from None

    def _sweep(self) -> None:
        """Remove what dead attempts left; see the module."""
        for folder in self._former_folders():
            self._remove(folder)
        self._sweep_due = False

    def _former_folders(self) -> list[Path]:
        """`<subtask>/<checkpoint>/<attempt>` of older attempts that this subtask looks after. Other
        subtasks remove theirs meanwhile."""
        context = self._context
        return [
            attempt
            for subtask in _numbered(self._staging)
            if int(subtask.name) % context.parallelism == context.subtask
            for checkpoint in _numbered(subtask)
            for attempt in _numbered(checkpoint)
            if int(attempt.name) < context.attempt
        ]

    def _remove(self, folder: Path) -> None:
        """With its parents up to the staging root, as far as they are empty."""
        shutil.rmtree(folder, ignore_errors=True)
        for parent in folder.parents:
            if parent == self._root:
                return
            try:
                parent.rmdir()
            except OSError:
                return

    def _check(self, schema: pa.Schema) -> None:
        check_folders(self._sink.partition_by, schema, self._context.operator)

    def _error(self, summary: str) -> OperatorError:
        return OperatorError(self._context.operator, self._context.subtask, summary)


def _published_name(job_id: str, operator_id: str) -> re.Pattern[str]:
    """Of files that a job's sink has published; group 1: the checkpoint."""
    name = re.escape(f"{_safe(job_id)}-{_safe(operator_id)}")
    return re.compile(rf"part-{name}-\d+-(\d+)-\d+\.parquet")


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", text)


def _files(folder: Path) -> Iterator[Path]:
    """What holds rows, in it and below. Others may be removing folders meanwhile; one that cannot
    be listed for another reason is an OSError: what is in it must not be passed over."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for place, _, names in os.walk(folder, onerror=failed):
        yield from (Path(place, name) for name in fnmatch.filter(names, FILES))


def _numbered(folder: Path) -> list[Path]:
    """What is in it with a number for a name."""
    try:
        return [folder / name for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return []
