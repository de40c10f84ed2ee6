"""Sources and sinks inside their operators, without an engine, and pyarrow in Spark's place."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from strom.connectors.spark.bridge import decode
from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.ids import KeyGroupRange, OperatorId
from strom.operators.base import OperatorContext
from strom.state.operator_state import OperatorStateBackend
from strom.testing.operator_harness import CollectingOutput, CountingMetrics


class Subtask:
    """One subtask's operator, opened. `tables`: its share of a checkpoint; None: it starts anew.
    `asks`: how often it has asked for splits."""

    def __init__(
        self,
        operator: Any,
        subtask: int,
        parallelism: int,
        attempt: int = 0,
        tables: Any = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.operator = operator
        self.output = CollectingOutput()
        self.asks = 0
        self._state = OperatorStateBackend()
        if tables is not None:
            self._state.restore(tables)
        context = OperatorContext(
            operator_id=OperatorId("op-1"),
            name="it",
            job_id="job",
            job_name="job",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=128,
            attempt=attempt,
            key_groups=KeyGroupRange(0, 127),
            config=JobConfig(),
            clock=clock or VirtualClock(),
            keyed_state=SimpleNamespace(),  # type: ignore[arg-type]
            operator_state=self._state,
            metrics=CountingMetrics(),
            wake_at=lambda at: None,
            wake=lambda: None,
            report_watermark=lambda watermark: None,
            publish=lambda key, value: None,
            request_splits=self._ask,
            restored=tables is not None,
        )
        operator.setup(context, self.output)
        operator.open()

    def snapshot(self, checkpoint_id: int) -> Any:
        """Its part of a checkpoint, as `redistribute` takes it."""
        self.operator.prepare_snapshot(checkpoint_id)
        return self._state.snapshot().tables()

    def complete(self, checkpoint_id: int) -> None:
        self.operator.notify_checkpoint_complete(checkpoint_id)

    def rows(self) -> list[Any]:
        """All that came out, in order."""
        return [row for e in self.output.elements if hasattr(e, "rows") for row in e.rows()]

    def _ask(self) -> None:
        self.asks += 1


class PyarrowCall:
    """A `GatewayCall` to write Parquet, done by pyarrow; blocks are not in an object store."""

    def __init__(
        self,
        method: str,
        blocks: list[Any],
        schema: pa.Schema,
        folder: str,
        partition_by: Any,
        rows_per_file: int,
        **where: Any,
    ) -> None:
        assert method == "write"
        rows = pa.concat_tables([decode(block) for block in blocks])
        self._arguments = (rows, Path(folder.removeprefix("file://")), partition_by, rows_per_file)

    def wait(self) -> None:
        rows, folder, partition_by, size = self._arguments
        folder.mkdir(parents=True)
        for inner, part in _parts(rows, list(partition_by)):
            place = folder / inner
            place.mkdir(parents=True, exist_ok=True)
            for index, start in enumerate(range(0, part.num_rows, size or part.num_rows)):
                name = f"part-00000-{os.urandom(4).hex()}-c{index:03d}.snappy.parquet"
                pq.write_table(part.slice(start, size or None), place / name)
        (folder / "_SUCCESS").touch()


def _parts(rows: pa.Table, names: list[str]) -> list[tuple[str, pa.Table]]:
    """Folder and rows of each partition."""
    if not names:
        return [("", rows)]
    name, *rest = names
    found = []
    for value in rows[name].unique().to_pylist():
        part = rows.filter(pa.compute.equal(rows[name], value)).drop_columns([name])
        found += [(f"{name}={value}/{inner}", table) for inner, table in _parts(part, rest)]
    return found
