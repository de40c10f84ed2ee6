"""Incremental checkpoints are read as full ones are: a base, and the deltas over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import strom
from open_state_kit import MAX, TIME_MS, filled, push, rows_of
from strom.benchmarks.states import records
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.config import JobConfig
from strom.core.ids import CheckpointId, OperatorId, TaskId, VertexId
from strom.state.carry import join
from strom.state.rocks.kept import row_log, row_table
from strom.state.rocks.kept.row_cache import RowCache
from strom.state.stored import StateTable
from strom.testing.backends import spilling

NAMES = ("aggregate", "slices", "sessions", "deduplicate_last", "interval_join")

ALSO = ("row_state", "row_state_ttl", "row_timers", "row_reduce", "row_windows")
ROWS = ("regular_join", "temporal_join", "top_n", "over_rows")


def three_layers(
    name: str, folder: Path, config: JobConfig | None = None
) -> tuple[set[str], OperatorId, dict[str, StateTable | None]]:
    """Three incremental checkpoints of a state in `folder / name`: which layers were written, and
    all that the last one holds."""
    layers: set[str] = set()
    whole: dict[str, StateTable | None] = {}
    storage = open_storage(str(folder), name)
    harness = filled(name, 60, config)
    operator = harness.context.operator_id
    increments = Increments()
    for number in (1, 2, 3):
        if number > 1:
            push(harness, records(50 + 2 * number, 10))
        harness.operator.prepare_snapshot(CheckpointId(number))
        found: dict[str, list[StateTable]] = {}
        for table in harness.keyed_state.snapshot().tables():
            found.setdefault(table.name, []).append(table)
        whole = {name: join(tables) for name, tables in found.items()}
        increment = increments.begin(CheckpointId(number), CheckpointId(number - 1))
        frozen = harness.keyed_state.snapshot(increment.since(operator))
        part = write_subtask(
            storage,
            CheckpointId(number),
            TaskId(VertexId("v"), 0),
            [(operator, frozen, None)],
            layers=increment.layers,
        )
        increments.written(CheckpointId(number), part)
        shape = OperatorShape(operator, "Op", 1, MAX)
        manifest = Manifest(name, name, CheckpointId(number), TIME_MS, (shape,), (part,))
        storage.publish(manifest)
        layers |= {handle.layer for handle in part.operators[0].keyed}
    harness.close()
    return layers, operator, whole


@pytest.mark.parametrize("names", [NAMES, ALSO, ROWS])
def test_layers_are_put_together(names: Sequence[str], tmp_path: Path) -> None:
    put_together(names, tmp_path)


def put_together(names: Sequence[str], tmp_path: Path, config: JobConfig | None = None) -> None:
    for name in names:
        written, operator, whole = three_layers(name, tmp_path, config)
        snapshot = strom.state.open(str(tmp_path / name))
        assert snapshot.checkpoint_id == 3
        assert {state.name for state in snapshot.operators[0].states} == set(whole)
        for state in snapshot.operators[0].states:
            raw = snapshot.table(operator, state.name, raw=True)
            assert rows_of(raw) == rows_of(whole[state.name].data)
            assert state.rows == raw.num_rows
        assert snapshot.verify().problems == []
        saved = strom.state.open(snapshot.edit().save(str(tmp_path / f"saved {name}")))
        assert not snapshot.diff(saved)
        assert saved.verify().ok
        if name != "interval_join":
            assert {"base", "delta"} <= written, name


@pytest.mark.parametrize("name", [*ROWS, "deduplicate_last", "interval_join"])
def test_layers_of_rows_that_lie_in_rocksdb(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in pieces, each with its own file."""
    for module in (row_table, row_log):
        monkeypatch.setattr(module, "PIECE", 7)
    spilled: list[int] = []
    close = RowCache.close
    monkeypatch.setattr(RowCache, "close", lambda self: (spilled.append(self.spilled), close(self)))
    put_together([name], tmp_path, JobConfig(state=spilling(8)))
    assert sum(spilled) > 0


def test_a_delta_that_is_gone_is_found(tmp_path: Path) -> None:
    three_layers("aggregate", tmp_path)
    snapshot = strom.state.open(str(tmp_path / "aggregate"))
    (delta,) = [
        handle.file.path
        for part in snapshot.stored.keyed_parts("operator", "groups")
        for handle in part.handles[1:2]
    ]
    (file,) = (tmp_path / "aggregate").rglob(Path(delta).name)
    file.unlink()
    assert any(Path(delta).name in one for one in snapshot.verify().problems)
    with pytest.raises(strom.StromError, match="missing"):
        snapshot.table("operator", "groups")
