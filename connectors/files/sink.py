"""`FileSink`, `ParquetSink`: exactly-once files.

    write        -> staged file, rolled when it is large
    barrier n    -> staged files are closed (beside the stream) and become committables of n
    n complete   -> renamed to `part-...`; readers of the folder see whole files of completed
                    checkpoints only
A checkpoint without records makes no file. How names are made and leftovers removed: `staging`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...api.connectors.base import PreparedCommit, Sink, SinkWriter, WriterContext
from ...api.types.type_info import schema_of
from ...core.batch import Batch, to_columns
from ...core.errors import ConfigurationError, ConnectorError, TypeMismatchError
from .encoders import ENCODERS, Encoder
from .formats import FormatName
from .partitions import split_by
from .paths import show_schema
from .staging import FileCommittable, StagingArea


@dataclass(frozen=True)
class FileSinkConfig:
    """What a writer needs to know. `roll_*`: a file that reaches either is closed and a next one
    started, within a checkpoint."""

    path: str
    format: FormatName
    schema: pa.Schema | None
    partition_by: tuple[str, ...]
    roll_rows: int
    roll_bytes: int
    compression: str
    options: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if self.format not in ENCODERS:
            raise ConfigurationError(
                f"file format must be one of {list(ENCODERS)}, is {self.format!r}"
            )
        if self.roll_rows < 1 or self.roll_bytes < 1:
            raise ConfigurationError(
                f"roll_rows and roll_bytes must be at least 1, are {self.roll_rows} and "
                f"{self.roll_bytes}"
            )
        if self.schema is not None:
            unknown = [name for name in self.partition_by if name not in self.schema.names]
            if unknown or len(self.partition_by) >= len(self.schema):
                raise ConfigurationError(
                    f"partition_by {list(self.partition_by)} must name some, not all, of the "
                    f"columns {self.schema.names}"
                )


class FileSink(Sink):
    """Part files in a folder of any fsspec filesystem, published when their checkpoint completes.

    If the job has to go back to an older checkpoint, because later ones are damaged, the files of
    those are removed.

    schema: columns of the files (anything that declares a row type); object records are turned
        into it. None: that of the first batch of each subtask. partition_by: columns that become
        `name=value` folders instead.
    """

    revocable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: FormatName = "parquet",
        schema: Any = None,
        partition_by: Sequence[str] = (),
        roll_rows: int = 10_000_000,
        roll_bytes: int = 256 << 20,
        compression: str = "zstd",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = FileSinkConfig(
            os.fspath(path),
            format,
            schema_of(schema),
            tuple(partition_by),
            roll_rows,
            roll_bytes,
            compression,
            storage_options,
        )

    def create_writer(self, context: WriterContext) -> FileSinkWriter:
        return FileSinkWriter(self.config, context)


class ParquetSink(FileSink):
    """A `FileSink` of Parquet files."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Any = None,
        partition_by: Sequence[str] = (),
        roll_rows: int = 10_000_000,
        roll_bytes: int = 256 << 20,
        compression: str = "zstd",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            path,
            "parquet",
            schema,
            partition_by,
            roll_rows,
            roll_bytes,
            compression,
            storage_options,
        )


@dataclass
class _Part:
    """A staged file being written, or complete and not yet prepared."""

    folder: str
    staged: str
    file: Any
    encoder: Encoder
    rows: int = 0


class FileSinkWriter(SinkWriter):
    """Writes in one subtask."""

    def __init__(self, config: FileSinkConfig, context: WriterContext) -> None:
        self._config = config
        self._context = context
        encoder = ENCODERS[config.format]
        self._area = StagingArea(config.path, config.options, encoder.suffix, context)
        self._schema = config.schema
        self._open: dict[str, _Part] = {}
        """The part being written of each partition folder ("" without partitions)."""
        self._full: list[_Part] = []
        """Parts rolled since the last prepare."""
        self._sweep_due = context.attempt > 0
        """Whether leftovers of dead attempts may exist that were not yet removed."""

    def write(self, batch: Batch) -> None:
        data = self._columns(batch)
        if not self._config.partition_by:
            self._append("", data)
            return
        for folder, part in split_by(data, self._config.partition_by):
            self._append(folder, part)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        parts = [*self._full, *self._open.values()]
        self._full, self._open = [], {}
        if not parts:
            return []
        return lambda: [self._seal(part, checkpoint_id, i) for i, part in enumerate(parts)]

    def commit(self, committables: Sequence[FileCommittable]) -> None:
        self._publish(committables)
        if self._sweep_due:
            self._sweep()

    def recover(self, committables: Sequence[FileCommittable]) -> None:
        self._publish(committables)
        if self._context.parallelism == 1:
            self._sweep()

    def revoke(self, after: int) -> None:
        try:
            self._area.revoke(after)
        except OSError as error:
            raise ConnectorError(
                f"cannot remove the files that '{self._config.path}' got after checkpoint {after}, "
                f"which the job went back to: {error}. The job must be allowed to delete there"
            ) from error

    def close(self) -> None:
        """Remove what was not prepared: nobody will publish it."""
        parts = [*self._full, *self._open.values()]
        self._full, self._open = [], {}
        for part in parts:
            part.encoder.abandon()
            try:
                part.file.close()
            finally:
                self._area.discard(part.staged)
        self._area.remove_empty_folders()

    def _publish(self, committables: Sequence[FileCommittable]) -> None:
        for committable in committables:
            try:
                self._area.publish(committable)
            except OSError as error:
                raise ConnectorError(
                    f"cannot publish '{committable.final}' from '{committable.staged}': {error}. "
                    "Both must be on one filesystem that the job may write"
                ) from error

    def _sweep(self) -> None:
        self._area.sweep()
        self._sweep_due = False

    def _columns(self, batch: Batch) -> pa.RecordBatch:
        if self._config.schema is not None:
            return to_columns(batch, self._config.schema).data
        data = to_columns(batch, self._schema if not hasattr(batch, "data") else None).data
        if self._schema is None:
            self._schema = data.schema
        elif not data.schema.equals(self._schema):
            raise TypeMismatchError(
                f"sink to '{self._config.path}': a batch has columns {show_schema(data.schema)}, "
                f"the first one had {show_schema(self._schema)}; declare a schema"
            )
        return data

    def _append(self, folder: str, data: pa.RecordBatch) -> None:
        part = self._open.get(folder)
        try:
            if part is None:
                part = self._open[folder] = self._start(folder, data.schema)
            part.encoder.write(data)
        except (OSError, pa.ArrowException) as error:
            where = self._config.path if part is None else part.staged
            raise ConnectorError(
                f"cannot write to '{where}': {error}. The folder must be writable on every machine "
                f"of the job, and {self._config.format} must have a form for the columns "
                f"{show_schema(data.schema)}"
            ) from error
        part.rows += data.num_rows
        if part.rows >= self._config.roll_rows or part.encoder.size >= self._config.roll_bytes:
            self._full.append(self._open.pop(folder))

    def _start(self, folder: str, schema: pa.Schema) -> _Part:
        staged, file = self._area.create()
        encoder = ENCODERS[self._config.format](file, schema, self._config.compression)
        return _Part(folder, staged, file, encoder)

    def _seal(self, part: _Part, checkpoint_id: int, sequence: int) -> FileCommittable:
        """Runs beside the task's thread; the writer no longer knows this part."""
        try:
            part.encoder.finish()
            size = int(part.file.tell())
            self._area.seal(part.file)
        except (OSError, pa.ArrowException) as error:
            raise ConnectorError(f"cannot complete '{part.staged}': {error}") from error
        final = self._area.final_path(checkpoint_id, sequence, part.folder)
        return FileCommittable(part.staged, final, part.rows, size)
