"""Checkpoints of single operators, as a task writes them, for tests that look into them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom import ColumnBatch
from strom.benchmarks.states import STATES, records
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.config import JobConfig
from strom.core.ids import CheckpointId, TaskId, VertexId
from strom.testing import OperatorHarness

MAX = 128
TIME_MS = 1_700_000_000_000


def filled(name: str, keys: int, config: JobConfig | None = None) -> OperatorHarness:
    """The operator of a state that `benchmarks.states` knows, with a record of each key."""
    state = STATES[name]
    harness = OperatorHarness.of(state.stream(), config=config)
    for port in state.ports:
        push(harness, records(0, keys), port)
    for port in state.ended:
        harness.end_input(port)
    return harness


def rows_of(table: pa.Table) -> list[str]:
    """The rows, in any order, comparable."""
    return sorted(repr(row) for row in table.to_pylist())


def push(harness: OperatorHarness, data: pa.RecordBatch, port: int = 0) -> None:
    harness.push(ColumnBatch(data, data.column("t").to_numpy()), port=port)


def taken(harness: OperatorHarness, folder: Path, job: str = "job", name: str = "Op") -> str:
    """The path of a checkpoint of it, and of nothing else."""
    storage = open_storage(str(folder), job)
    harness.operator.prepare_snapshot(CheckpointId(1))
    keyed, operator = harness.keyed_state.snapshot(), harness.operator_state.snapshot()
    parts = [(harness.context.operator_id, keyed, operator)]
    snapshot = write_subtask(storage, CheckpointId(1), TaskId(VertexId("v"), 0), parts)
    shape = OperatorShape(harness.context.operator_id, name, 1, MAX)
    storage.publish(Manifest(job, "Job", CheckpointId(1), TIME_MS, (shape,), (snapshot,)))
    return str(folder / job / "chk-1")


def rewritten(path: str, change: Callable[[Any], Any]) -> None:
    """Change a manifest's body as somebody would who knows how checksums are made."""
    import json

    from strom.checkpoint.manifest import _checksum

    file = Path(path) / "manifest.json"
    document = json.loads(file.read_text())
    change(document["body"])
    document["checksum"] = _checksum(document["body"])
    file.write_text(json.dumps(document))
