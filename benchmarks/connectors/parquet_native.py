"""How fast the native Parquet source gives rows of two columns, an int64 and a string.

A file is written per task, of row groups of `ROW_GROUP` rows; the job reads them and drops the
rows. Beside it pyarrow alone decodes the same files, on as many threads as the job has tasks: what
the source may at most reach, for that is what it decodes with.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from strom import DiscardSink
from strom.connectors.files import FileSource

from ..measure import Setting, environment
from ..streams import mix, numbers
from .lines import Line, at_least, expect, tasks_cpu_s

ROW_GROUP = 1 << 20
DISTINCT = 10_000
"""Texts, of 12 bytes."""

TARGET = 20_000_000
"""Rows a second."""


def parquet_native(
    rows: int = 40_000_000, parallelism: int = 2, host: str = "ray", runs: int = 3
) -> Line:
    """One line: rows/s of the median run and of pyarrow alone, MB/s of file and of Arrow memory,
    and the tasks' CPU seconds per million rows."""
    with tempfile.TemporaryDirectory(prefix="strom-parquet-") as folder:
        size, memory = write_files(Path(folder), rows, parallelism)
        alone = [decode(Path(folder), parallelism) for _ in range(runs)]
        taken = [read(Path(folder), rows, parallelism, host) for _ in range(runs)]
    middle = statistics.median_low([seconds for seconds, _ in taken])
    cpu = next(cpu for seconds, cpu in taken if seconds == middle)
    line = {
        "name": "parquet_native",
        "engine": "strom",
        "direction": "in",
        "rows": rows,
        "seconds": round(middle, 3),
        "rows_per_s": round(rows / middle),
        "file_mb_per_s": round(size / middle / 1e6, 1),
        "arrow_mb_per_s": round(memory / middle / 1e6, 1),
        "cpu_s_per_m_rows": round(cpu / rows * 1e6, 4),
        "runs": [round(rows / seconds) for seconds, _ in taken],
        "pyarrow_rows_per_s": round(rows / statistics.median_low(alone)),
        "parallelism": parallelism,
        "host": host,
    }
    return at_least(line, "rows_per_s", TARGET)


def write_files(folder: Path, rows: int, files: int) -> tuple[int, int]:
    """A file per task; the bytes of all, and of their columns in memory."""
    texts = pa.array([f"text-{i:07d}" for i in range(DISTINCT)])
    size = memory = 0
    for number in range(files):
        first, last = rows * number // files, rows * (number + 1) // files
        path = folder / f"{number}.parquet"
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        with pq.ParquetWriter(path, schema, compression="snappy") as writer:
            for start in range(first, last, ROW_GROUP):
                random = mix(numbers(start, min(ROW_GROUP, last - start)))
                chosen = (random % np.uint64(DISTINCT)).astype(np.int64)
                columns = [pa.array(random.astype(np.int64)), texts.take(pa.array(chosen))]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                writer.write_batch(batch, row_group_size=ROW_GROUP)
                memory += batch.nbytes
        size += path.stat().st_size
    return size, memory


def decode(folder: Path, threads: int) -> float:
    """Seconds that pyarrow takes to decode all files, one per thread."""

    def one(path: Path) -> None:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, use_threads=False)

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, sorted(folder.glob("*.parquet"))))
    return time.perf_counter() - start


def read(folder: Path, rows: int, parallelism: int, host: str) -> tuple[float, float]:
    """Seconds and CPU seconds that a job takes."""
    env = environment(Setting("parquet_native", rows, parallelism, host))
    env.from_source(FileSource(folder), source_name="files").sink_to(DiscardSink())
    result = env.execute("benchmark parquet_native")
    expect(result.metrics["operators"][0]["records_out"], rows, "rows read of Parquet files")
    return result.net_runtime_ms / 1000, tasks_cpu_s(result)
