"""Rows that wait for their windows take of memory what they may, while they come, while snapshots
of them are taken, and while windows fire one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom import StateConfig, StreamExecutionEnvironment, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.testing.operator_harness import OperatorHarness

SCHEMAS = [pa.schema({"k": pa.int64(), name: pa.list_(pa.string())}) for name in ("v", "w")]
ROWS, WINDOWS, WIDTH = 2000, 30, 300
CACHES = 2 << 20
"""A window of both sides is 1.2 MB, all are 36 MB."""


def batch(port: int, window: int) -> ColumnBatch:
    keys = np.arange(ROWS) + window
    lists = [[f"{key:08}".ljust(WIDTH - 8)] for key in keys.tolist()]
    rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(lists)], schema=SCHEMAS[port])
    return ColumnBatch(rows, np.full(ROWS, window * 100))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_open_windows_do_not_have_to_fit(backend: str, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in SCHEMAS)
    window = TumblingEventTimeWindows.of(100)
    joined = left.window_join(right, window, left_type=SCHEMAS[0], right_type=SCHEMAS[1])
    state = StateConfig(backend, memory=2 * CACHES, rocksdb_share=0.5, local_dirs=(str(tmp_path),))
    harness = OperatorHarness.of(joined, config=JobConfig(state=state))
    start, took = pa.total_allocated_bytes(), 0

    def look() -> None:
        nonlocal took
        took = max(took, pa.total_allocated_bytes() - start)

    for number in range(WINDOWS):
        for port in (0, 1):
            harness.push(batch(port, number), port=port)
            look()
    held = took
    stored = 0
    for table in harness.keyed_state.snapshot().tables():
        stored += table.data.num_rows if table.name in ("left", "right") else 0
    assert stored == 2 * WINDOWS * ROWS
    figures: dict[str, Any] = {}
    harness.keyed_state.report(figures.__setitem__)
    took = 0
    for number in range(WINDOWS):
        harness.watermark(number * 100 + 99)
        look()
        assert sum(map(len, harness.batches())) == ROWS
        harness.output.elements.clear()
    harness.close()
    if backend == "hashmap":
        assert held > 30 << 20
        assert not figures
    else:
        assert held < 2 * CACHES
        assert took < held + (6 << 20), "one window, and what the join makes of it"
        assert figures["state.entries.spilled"] > WINDOWS * ROWS
        assert figures["state.bytes.cache"] < 1.5 * CACHES
        assert not list(tmp_path.iterdir()), "its folder is removed"
