"""Writes the files of one subtask of a file sink."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from ...api.connectors.base import PreparedCommit, SinkWriter, WriterContext
from ...core.batch import Batch, to_columns
from ...core.errors import ConnectorError, FencedError, TypeMismatchError
from ...core.failure_text import described
from ...core.transient import is_transient
from .avro import AvroFileEncoder
from .compaction import PARQUET, Compaction, HeldFile, MergedFile
from .encoders import ENCODERS, DescribedCsvEncoder, FileEncoder
from .owners import Owners, Ownership
from .partitions import split_by
from .paths import show_schema
from .row_formats import RowFile
from .sink_config import FileSinkConfig
from .staging import FileCommittable, StagingArea

log = logging.getLogger("strom")


@dataclass
class _Part:
    """A staged file being written, or complete and not yet prepared. Times in ms."""

    folder: str
    staged: str
    file: Any
    encoder: FileEncoder | RowFile
    opened_ms: int
    written_ms: int
    schema: pa.Schema | None
    rows: int = 0


class FileSinkWriter(SinkWriter):
    """Writes in one subtask."""

    def __init__(self, config: FileSinkConfig, context: WriterContext) -> None:
        self._config = config
        self._context = context
        self._area = StagingArea(
            config.path,
            config.options,
            config.suffix,
            context,
            config.names.part_prefix,
            config.ending,
        )
        self._ownership = Ownership(Owners(config.path, config.options), context)
        self._schema = config.schema
        self._open: dict[str, _Part] = {}
        """The part being written of each folder ("" for the sink's own)."""
        self._full: list[_Part] = []
        """Parts rolled since the last prepare."""
        self._sweep_due = context.attempt > 0
        """Whether leftovers of dead attempts may exist that were not yet removed."""
        self._check_at = 0
        """When (ms) to look for parts to close for their age."""
        self._compaction = (
            None
            if config.compact is None
            else Compaction(config.compact, config.merging, self._area, config.compression)
        )
        self._held: list[HeldFile] = []
        """Held files that no checkpoint names which may still complete; all in the held folder."""
        self._finished = False
        self._let_go = False
        """Whether the last files were prepared: what is held by earlier checkpoints that complete
        from now on is published as it is."""

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        now = self._context.clock.now_ms()
        self._roll_stale(now)
        buckets = self._config.buckets
        folder = "" if buckets is None else buckets.folder(now)
        if self._config.encoder is not None:
            self._append(folder, batch, None, now)
            return
        data = self._columns(batch)
        if not self._config.partition_by:
            self._append(folder, data, data.schema, now)
            return
        for inner, part in split_by(data, self._config.partition_by):
            self._append(folder + inner, part, part.schema, now)

    def finish(self) -> None:
        self._finished = True

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        parts = [*self._full, *self._open.values()]
        self._full, self._open = [], {}
        held, self._held = self._held, []
        self._let_go = self._finished
        if not parts and not held:
            return []
        return partial(self._prepared, parts, held, checkpoint_id, self._finished)

    def commit(self, committables: Sequence[Any]) -> None:
        self._publish(committables)
        if self._sweep_due:
            self._sweep()

    def recover(self, committables: Sequence[Any]) -> None:
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
        with ExitStack() as ends:  # in reverse, and all of them, whatever one raises
            ends.callback(self._area.remove_empty_folders)
            for part in parts:
                ends.callback(self._area.discard, part.staged)
                ends.callback(part.file.close)
                ends.callback(part.encoder.abandon)

    # --- beside the task's thread ----------------------------------------------------------

    def _prepared(
        self, parts: Sequence[_Part], held: Sequence[HeldFile], checkpoint_id: int, last: bool
    ) -> Sequence[Any]:
        """The committables; the writer no longer knows these parts and held files."""
        sealed = [self._seal(part, checkpoint_id, i) for i, part in enumerate(parts)]
        if self._compaction is None:
            return sealed
        new = [
            HeldFile(
                file.staged,
                self._area.held_path(file.staged),
                file.final,
                part.folder,
                file.rows,
                file.size,
                *self._layout(part.schema),
            )
            for file, part in zip(sealed, parts, strict=True)
        ]
        try:
            return self._compaction.prepared(held, new, checkpoint_id, last)
        except ConnectorError as error:
            self._say_if_fenced(error)
            raise

    def _seal(self, part: _Part, checkpoint_id: int, sequence: int) -> FileCommittable:
        try:
            part.encoder.finish()
            size = int(part.file.tell())
            self._area.seal(part.file)
        except (OSError, pa.ArrowException) as error:
            raise ConnectorError(f"cannot complete '{part.staged}': {error}") from error
        final = self._area.final_path(checkpoint_id, sequence, part.folder)
        return FileCommittable(part.staged, final, part.rows, size)

    def _layout(self, schema: pa.Schema | None) -> tuple[str, int]:
        """What files must have in common to be merged, and the length of their header."""
        if schema is None:
            return "", 0
        columns = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
        if self._config.format == "csv":
            header = pa.BufferOutputStream()
            texts = pa.schema([(name, pa.string()) for name in schema.names])
            pacsv.CSVWriter(header, texts).close()
            return columns, len(header.getvalue())
        return (PARQUET if self._config.format == "parquet" else "") + columns, 0

    # --- publishing ------------------------------------------------------------------------

    def _publish(self, committables: Sequence[Any]) -> None:
        published: list[str] = []
        held: list[HeldFile] = []
        self.published = 0
        try:
            for committable in committables:
                self._publish_one(committable, published, held)
                self.published += 1
        except ConnectorError as error:
            self._say_if_fenced(error, published)
            raise
        self._settle()
        if committables:
            self._check_owner(published)
        for committable in committables:
            if isinstance(committable, MergedFile):
                for file in committable.made_of:
                    self._area.discard(file.staged)
                    self._area.discard(file.held)
        # Nothing raises from here on: what failed comes again, and is not to be held twice.
        self._held += held

    def _publish_one(self, committable: Any, published: list[str], held: list[HeldFile]) -> None:
        """`published`, `held`: it is noted there."""
        match committable:
            case HeldFile():
                self._hold(committable, held)
            case MergedFile(whole=whole):
                self._move(whole)
                published.append(whole.final)
            case _:
                self._move(committable)
                published.append(committable.final)

    def _say_if_fenced(self, error: ConnectorError, published: Sequence[str] = ()) -> None:
        """Where files are gone because another job has them now, that is what is to be said."""
        try:
            self._check_owner(published)
        except FencedError as fenced:
            raise fenced from error
        except ConnectorError:
            return  # the first error tells more

    def _check_owner(self, published: Sequence[str]) -> None:
        try:
            self._ownership.check(published)
        except OSError as error:
            raise ConnectorError(
                f"cannot see whose '{self._config.path}' is: {error}. Both it and what is in "
                "'.strom' there must be readable on every machine of the job"
            ) from error

    def _hold(self, file: HeldFile, held: list[HeldFile]) -> None:
        """Keep a file for a later checkpoint, in `held`; it may be another subtask's of a dead
        attempt."""
        waits = self._compaction is not None and not self._let_go
        place = next((at for at in (file.held, file.staged) if self._area.exists(at)), None)
        if place is None:
            self._check_published(file)
        elif not waits:
            self._move(FileCommittable(place, file.final, file.rows, file.size))
        elif place == file.staged:
            self._move(FileCommittable(place, file.held, file.rows, file.size))
            held.append(file)
        else:
            held.append(file)

    def _check_published(self, file: HeldFile) -> None:
        """A held file that is in neither place must have been let go of at the end of a job."""
        if not self._area.exists(file.final):
            raise ConnectorError(
                f"'{file.held}', with {file.rows} rows that a checkpoint holds for '{file.final}', "
                "is not there: a later checkpoint published them in a merged file, or '.staging' "
                "was removed. Restore from the latest checkpoint: a FileSink that compacts cannot "
                "go back to an older one"
            )

    def _move(self, committable: FileCommittable) -> None:
        try:
            self._area.publish(committable)
        except OSError as error:
            raise ConnectorError(
                f"cannot publish '{committable.final}' from '{committable.staged}': {error}. "
                "Both must be on one filesystem that the job may write"
            ) from error

    def _settle(self) -> None:
        try:
            self._area.settle()
        except OSError as error:
            raise ConnectorError(
                f"cannot make what was published in '{self._config.path}' durable: {error}. Look "
                "at the disk, and start the job again from its checkpoint"
            ) from error

    def _sweep(self) -> None:
        """What fails by what may pass is done behind the next commit: this one is done."""
        try:
            self._area.sweep()
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning(
                "what dead attempts left in '%s' stays for now: %s",
                self._config.path,
                described(error),
            )
        else:
            self._sweep_due = False

    # --- writing ---------------------------------------------------------------------------

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

    def _append(self, folder: str, data: Any, schema: pa.Schema | None, now_ms: int) -> None:
        part = self._open.get(folder)
        try:
            if part is None:
                part = self._open[folder] = self._start(folder, schema, now_ms)
            part.encoder.write(data)
        except (OSError, pa.ArrowException) as error:
            where = self._config.path if part is None else part.staged
            columns = (
                ""
                if schema is None
                else (
                    f", and {self._config.format} must have a form for the columns "
                    f"{show_schema(schema)}"
                )
            )
            raise ConnectorError(
                f"cannot write to '{where}': {error}. The folder must be writable on every machine "
                f"of the job{columns}"
            ) from error
        part.rows += len(data)
        part.written_ms = now_ms
        if self._config.rolling.full(part.rows, part.encoder.size):
            self._full.append(self._open.pop(folder))

    def _start(self, folder: str, schema: pa.Schema | None, now_ms: int) -> _Part:
        config = self._config
        staged, file = self._area.create()
        encoder: FileEncoder | RowFile
        if config.encoder is not None:
            encoder = RowFile(file, config.encoder)
        elif config.avro is not None:
            assert schema is not None
            encoder = AvroFileEncoder(file, schema, config.avro)
        elif config.csv is not None:
            assert schema is not None
            encoder = DescribedCsvEncoder(file, schema, config.csv)
        else:
            encoder = ENCODERS[config.format](file, schema, config.compression)
        return _Part(folder, staged, file, encoder, now_ms, now_ms, schema)

    def _roll_stale(self, now_ms: int) -> None:
        every = self._config.check_every_ms
        if every is None or now_ms < self._check_at:
            return
        self._check_at = now_ms + every
        for folder, part in list(self._open.items()):
            if self._config.rolling.stale(part.opened_ms, part.written_ms, now_ms):
                self._full.append(self._open.pop(folder))
