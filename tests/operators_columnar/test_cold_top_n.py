"""What windows' top-n and extremes know of each key leaves memory, as their records do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from backends import TINY
from strom import StreamExecutionEnvironment, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.operators.windows import compacting_buffer
from strom.testing.operator_harness import OperatorHarness

MADE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "top n": ("best", lambda windows: windows.top_n(2, ["v", "w"])),
    "extremes": ("extremes", lambda windows: windows.max_by("v", ties=True)),
}


def results(made: Callable[[Any], Any], table: str, job: JobConfig) -> tuple[list[Any], int]:
    """And how many keys of the table were written to RocksDB."""
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([]).key_by("k")
    harness = OperatorHarness.of(made(keyed.window(TumblingEventTimeWindows.of(100))), config=job)
    random, found = np.random.default_rng(0), []
    for step in range(40):
        columns = {name: random.integers(0, most, 50) for name, most in (("k", 9), ("v", 20))}
        rows = pa.record_batch({**columns, "w": np.arange(50) + step * 50})
        harness.push(ColumnBatch(rows, random.integers(0, 600, 50) + step // 10 * 300))
        if step % 10 == 9:
            harness.watermark(step // 10 * 300 + 299)
        found += harness.outputs()
        harness.output.elements.clear()
    harness.watermark(10_000)
    found += harness.outputs()
    cold = getattr(harness.keyed_state, "_cold", [])
    spilled = sum(state.spilled for state in cold if getattr(state, "_name", None) == table)
    harness.close()
    return [tuple(row) for row in found], spilled


@pytest.mark.parametrize("name", MADE)
def test_results_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting_buffer, "FIRST_COMPACTION", 20)
    table, made = MADE[name]
    want, _ = results(made, table, JobConfig())
    found, spilled = results(made, table, JobConfig(state=TINY))
    assert found == want
    assert len(want) > 100
    assert spilled > 100
