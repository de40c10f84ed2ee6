"""An exactly-once sink: Spark writes a Delta table, one version for each checkpoint and subtask.

    barrier n    Spark writes data files into the table's folder; no version names them
    n complete   a version adds them, and says that checkpoint n of this writer is in the table

A commit that is repeated, because the answer to it was lost or the job was restored, finds that
there and does nothing (`delta_table.py`). What a dead attempt wrote and nobody commits, no version
names: Delta's VACUUM removes it in time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

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
from ...core.row_kind import refuse_changelog
from .blocks import Blocks, check_folders
from .calls import GatewayCall, path_told
from .delta_owners import DeltaOwner, first_of
from .delta_table import DeltaWrite, StagedRows
from .options import SparkOptions, require_spark


class SparkDeltaSink(Sink):
    """Appends to the Delta table at `path`, a folder or URL that Spark's executors reach. If there
    is none, the first checkpoint with records makes it, with the stream's columns.

    The table's columns must be the stream's. `partition_by`: what a new table is partitioned by,
    and what one that is there must be; None: as it is. `rows_per_file`: a file that has so many
    rows is closed and a next one begun; None: a file for each checkpoint, subtask and partition.
    `schema`: needed when the stream's records are Python objects without a declared type. A block
    is handed to the object store when it reaches `block_bytes`, so a subtask keeps no more than
    that in its own memory."""

    revocable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        partition_by: str | Sequence[str] | None = None,
        *,
        schema: Any = None,
        rows_per_file: int | None = None,
        block_bytes: int = 32 << 20,
        options: SparkOptions | None = None,
    ) -> None:
        require_spark()
        if rows_per_file is not None and rows_per_file < 1:
            raise ConfigurationError(f"rows_per_file must be at least 1, is {rows_per_file}")
        names = (partition_by,) if isinstance(partition_by, str) else partition_by
        parts = None if names is None else tuple(names)
        self.write = DeltaWrite(path_told(path), parts, rows_per_file or 0)
        self.schema = schema_of(schema)
        self.block_bytes = block_bytes
        self.options = options
        self._owner = ""
        """What writers are told of whose the work is; known to the coordinator that took over."""

    def __repr__(self) -> str:
        return f"SparkDeltaSink({self.write.path})"

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        if (first := first_of(claim)) is not None:
            self._owner = str(first)
            return ()
        call = GatewayCall(
            "delta_take",
            self.write.path,
            claim,
            options=self.options,
            operator=claim.operator,
            subtask=0,
        )
        self._owner, said = call.wait()
        return list(said)

    def writers_token(self, claim: OutputClaim) -> str:
        return self._owner

    def create_writer(self, context: WriterContext) -> DeltaWriter:
        return DeltaWriter(self, context)


class DeltaWriter(SinkWriter):
    """One subtask's writer. `_app`: by what Delta knows it; another one for each attempt."""

    def __init__(self, sink: SparkDeltaSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._job = f"strom/{context.job_id}/{context.operator_id}/"
        """How the names of all writers of this sink begin, in all attempts."""
        self._app = f"{self._job}{context.subtask}/{uuid4().hex[:12]}"
        self._blocks = Blocks(sink.schema, sink.block_bytes, self._error, self._check)
        """Rows since the last prepare."""
        self._lock = threading.Lock()
        self._uncommitted: dict[int, StagedRows] = {}
        """Prepared by this writer and not seen committed, by ascending checkpoint; under
        `_lock`."""

    def write(self, batch: Batch) -> None:
        refuse_changelog(batch, self._context.operator, "inserts into a table (SparkDeltaSink)")
        self._blocks.add(batch)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        blocks = self._blocks.take()
        return partial(self._stage, checkpoint_id, blocks) if blocks else ()

    def commit(self, committables: Sequence[StagedRows]) -> None:
        if not committables:
            return
        owner = DeltaOwner.of(self._context.token)
        self._call("delta_commit", self._sink.write.path, tuple(committables), owner).wait()
        with self._lock:
            for staged in committables:
                if staged.app == self._app:
                    self._uncommitted.pop(staged.version, None)

    def revoke(self, after: int) -> None:
        """One subtask does it for all: nothing new is committed before."""
        if self._context.subtask == 0:
            self._call("delta_revoke", self._sink.write.path, self._job, after).wait()

    def close(self) -> None:
        self._blocks.clear()

    def _stage(self, checkpoint_id: int, blocks: list[Any]) -> Sequence[StagedRows]:
        """Runs beside the task's thread; `blocks` is this call's own."""
        write = self._sink.write
        files, table = self._call("delta_stage", blocks, self._blocks.schema, write).wait()
        blocks.clear()
        with self._lock:
            before = tuple(self._uncommitted.values())
            staged = StagedRows(self._app, checkpoint_id, files, table)
            self._uncommitted[checkpoint_id] = staged
        return [replace(staged, before=before)]

    def _call(self, method: str, *arguments: Any) -> GatewayCall:
        context = self._context
        return GatewayCall(
            method,
            *arguments,
            options=self._sink.options,
            operator=context.operator,
            subtask=context.subtask,
        )

    def _check(self, schema: pa.Schema) -> None:
        check_folders(self._sink.write.partition_by or (), schema, self._context.operator)

    def _error(self, summary: str) -> OperatorError:
        return OperatorError(self._context.operator, self._context.subtask, summary)
