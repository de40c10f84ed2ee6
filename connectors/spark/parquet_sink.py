"""An exactly-once sink: Spark writes Parquet, a checkpoint's completion publishes it.

    before: <path>/.staging/<job>-<operator>/<subtask>/<checkpoint>/<attempt>/
    after:  <path>/[column=value/]part-<job>-<operator>-<subtask>-<checkpoint>-<index>.parquet

Readers (Spark, pyarrow, pandas, DuckDB's globs) skip names that begin with a dot. A file is
published by an atomic rename to a name that depends only on what it holds, so publishing again
finds it there.

Leftovers. A dead attempt may leave staged files. Those that a restored checkpoint refers to are
published by some subtask, not always by the one that wrote them, so `recover` removes only what
is certainly dead: what is newer than the checkpoint restored. The rest of older attempts goes
when the first checkpoint of this attempt is prepared: by then every subtask has recovered. Former
subtasks that no longer exist are looked after by the subtask of the same index modulo the
parallelism.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ...api.connectors.base import PreparedCommit, Sink, SinkWriter, WriterContext
from ...api.types.type_info import schema_of
from ...core.batch import Batch, to_columns
from ...core.errors import ConfigurationError, OperatorError
from .bridge import encode, storable
from .calls import GatewayCall
from .options import SparkOptions, require_spark

STAGING: Final = ".staging"


@dataclass(frozen=True)
class StagedFile:
    """A committable: rename `staged` to `final`; both are relative to the sink's folder."""

    checkpoint_id: int
    staged: str
    final: str


class SparkParquetSink(Sink):
    """Writes to the folder `path`, which tasks and Spark's executors must share (one machine's
    disk, or a mounted file system): publishing is a rename.

    `partition_by`: columns that become folders. `schema`: needed when the stream's records are
    Python objects without a declared type. A block is handed to the object store when it reaches
    `block_bytes`, so a subtask keeps no more than that in its own memory."""

    revocable = True

    def __init__(
        self,
        path: str,
        partition_by: str | Sequence[str] | None = None,
        *,
        schema: Any = None,
        block_bytes: int = 32 << 20,
        options: SparkOptions | None = None,
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
        self.schema = schema_of(schema)
        self.block_bytes = block_bytes
        self.options = options

    def create_writer(self, context: WriterContext) -> ParquetWriter:
        return ParquetWriter(self, context)


class ParquetWriter(SinkWriter):
    """One subtask's writer."""

    def __init__(self, sink: SparkParquetSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._root = Path(sink.path)
        self._name = f"{_safe(context.job_id)}-{_safe(context.operator_id)}"
        self._batches: list[pa.RecordBatch] = []
        """Rows since the last prepare that are not in a block yet, all of `_schema`."""
        self._bytes = 0
        """Size of `_batches`."""
        self._blocks: list[Any] = []
        """References of the blocks since the last prepare."""
        self._schema: pa.Schema | None = None
        """Columns of all rows written, as Spark can store them; set by the first batch."""
        self._cleaned = False
        """Whether staged files of older attempts are gone."""

    def write(self, batch: Batch) -> None:
        rows = to_columns(batch, self._sink.schema).data
        if self._schema is None:
            self._schema = self._check(storable(rows.schema))
        elif rows.schema.names != self._schema.names:
            raise self._error(f"columns {rows.schema.names} after columns {self._schema.names}")
        try:
            rows = rows.cast(self._schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._error(f"a value does not fit what Parquet stores: {error}") from None
        self._batches.append(rows)
        self._bytes += int(rows.nbytes)
        if self._bytes >= self._sink.block_bytes:
            self._seal()

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        if not self._cleaned:
            self._remove_older_attempts()
        self._seal()
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return ()
        return partial(self._stage, checkpoint_id, blocks)

    def commit(self, committables: Sequence[StagedFile]) -> None:
        for item in committables:
            self._publish(item)
        for folder in {self._root / Path(*Path(c.staged).parts[:5]) for c in committables}:
            shutil.rmtree(folder, ignore_errors=True)
            self._remove_empty(folder.parent)

    def recover(self, committables: Sequence[StagedFile]) -> None:
        self.commit(committables)
        if committables:
            self._remove_newer(max(c.checkpoint_id for c in committables))

    def revoke(self, after: int) -> None:
        """Remove the published files of later checkpoints that former subtasks of this one's share
        wrote."""
        mine = re.compile(rf"part-{re.escape(self._name)}-(\d+)-(\d+)-\d+\.parquet")
        parallelism, subtask = self._context.parallelism, self._context.subtask
        for file in self._root.rglob(f"part-{self._name}-*.parquet"):
            match = mine.fullmatch(file.name)
            if match and int(match[1]) % parallelism == subtask and int(match[2]) > after:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        self._batches, self._blocks, self._bytes = [], [], 0

    @property
    def _staging(self) -> Path:
        return self._root / STAGING / self._name

    def _seal(self) -> None:
        if self._batches:
            import ray

            self._blocks.append(ray.put(encode(pa.Table.from_batches(self._batches))))
            self._batches, self._bytes = [], 0

    def _stage(self, checkpoint_id: int, blocks: list[Any]) -> Sequence[StagedFile]:
        """Runs beside the task's thread; `blocks` is this call's own."""
        context = self._context
        folder = self._staging / str(context.subtask) / str(checkpoint_id) / str(context.attempt)
        folder.parent.mkdir(parents=True, exist_ok=True)
        call = GatewayCall(
            "write",
            blocks,
            self._schema,
            f"file://{folder}",
            self._sink.partition_by,
            options=self._sink.options,
            operator=context.operator,
            subtask=context.subtask,
        )
        call.wait()
        blocks.clear()
        files = sorted(folder.rglob("part-*.parquet"))
        if not files:
            raise self._error(
                f"Spark wrote checkpoint {checkpoint_id}, but no file is in its staging folder: "
                f"'{self._sink.path}' is not the same folder for the tasks and for Spark"
            )
        _make_durable(folder, files)
        return [self._committable(checkpoint_id, folder, f, i) for i, f in enumerate(files)]

    def _committable(self, checkpoint_id: int, folder: Path, file: Path, index: int) -> StagedFile:
        name = f"part-{self._name}-{self._context.subtask:05d}-{checkpoint_id:08d}-{index:04d}"
        final = file.relative_to(folder).parent / f"{name}.parquet"
        return StagedFile(checkpoint_id, str(file.relative_to(self._root)), str(final))

    def _publish(self, item: StagedFile) -> None:
        staged, final = self._root / item.staged, self._root / item.final
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(staged, final)
        except FileNotFoundError:
            if not final.exists():
                raise self._error(
                    f"checkpoint {item.checkpoint_id} refers to a staged file that is gone and was "
                    f"never published: '{item.staged}'"
                ) from None

    def _remove_newer(self, checkpoint_id: int) -> None:
        for folder in self._former_folders():
            if int(folder.parent.name) > checkpoint_id:
                shutil.rmtree(folder, ignore_errors=True)
                self._remove_empty(folder.parent)

    def _remove_older_attempts(self) -> None:
        for folder in self._former_folders():
            shutil.rmtree(folder, ignore_errors=True)
            self._remove_empty(folder.parent)
        self._cleaned = True

    def _former_folders(self) -> list[Path]:
        """`<subtask>/<checkpoint>/<attempt>` of older attempts that this subtask looks after."""
        context = self._context
        return [
            folder
            for folder in self._staging.glob("*/*/*")
            if all(part.isdigit() for part in folder.parts[-3:])
            and int(folder.parts[-3]) % context.parallelism == context.subtask
            and int(folder.name) < context.attempt
        ]

    def _remove_empty(self, folder: Path) -> None:
        """Remove `folder` and its parents up to the staging root, as far as they are empty."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _check(self, schema: pa.Schema) -> pa.Schema:
        missing = sorted(set(self._sink.partition_by) - set(schema.names))
        if missing:
            raise ConfigurationError(
                f"operator '{self._context.operator}': partition_by names {missing}, but the "
                f"stream has the columns {schema.names}"
            )
        return schema

    def _error(self, summary: str) -> OperatorError:
        return OperatorError(self._context.operator, self._context.subtask, summary)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", text)


def _make_durable(folder: Path, files: Sequence[Path]) -> None:
    for path in [*files, *{f.parent for f in files}, folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
