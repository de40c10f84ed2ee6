"""A join of rows of 300 bytes in a process of its own, and what it took: `python join_memory.py
BACKEND FOLDER`. Prints the megabytes that it grew by, to its largest, a whole snapshot included."""

from __future__ import annotations

import json
import sys

import numpy as np
import psutil
import pyarrow as pa
from strom import StateConfig, StreamExecutionEnvironment
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.testing.operator_harness import OperatorHarness

ROWS, BATCH, KEYS, WIDTH = 500_000, 8192, 250_000, 300
BUDGET = 64 << 20

SCHEMAS = [pa.schema({"k": pa.int64(), name: pa.string()}) for name in ("v", "w")]


def batch(random: np.random.Generator, port: int, count: int) -> ColumnBatch:
    keys = random.integers(0, KEYS, count)
    texts = pa.array([f"{key:08}".ljust(WIDTH - 8) for key in keys.tolist()])
    rows = pa.RecordBatch.from_arrays([pa.array(keys), texts], schema=SCHEMAS[port])
    return ColumnBatch(rows, np.zeros(count, np.int64))


def main(backend: str, folder: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in SCHEMAS)
    joined = left.join(right, left_type=SCHEMAS[0], right_type=SCHEMAS[1])
    state = StateConfig(backend, memory=BUDGET, local_dirs=(folder,))
    harness = OperatorHarness.of(joined, config=JobConfig(state=state))
    random, process = np.random.default_rng(0), psutil.Process()
    start = largest = emitted = snapshot = 0
    for number in range(ROWS // BATCH):
        harness.push(batch(random, number % 2, BATCH), port=number % 2)
        emitted += sum(len(made) for made in harness.batches())
        harness.output.elements.clear()
        largest = max(largest, process.memory_info().rss)
        start = start or largest
    for table in harness.keyed_state.snapshot().tables():
        snapshot += table.data.num_rows if table.kind == "rows" else 0
        largest = max(largest, process.memory_info().rss)
    harness.close()
    print(json.dumps({"mb": (largest - start) >> 20, "emitted": emitted, "rows": snapshot}))


if __name__ == "__main__":
    main(*sys.argv[1:])
