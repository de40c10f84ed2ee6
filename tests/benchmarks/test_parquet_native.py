"""The benchmark of the native Parquet source reads what it wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from strom.benchmarks.connectors.parquet_native import decode, parquet_native, write_files


def test_its_line() -> None:
    line = parquet_native(rows=5_000, parallelism=2, host="local", runs=1)
    assert line["rows"] == 5_000
    assert line["rows_per_s"] > 0
    assert line["arrow_mb_per_s"] > 0
    assert line["pyarrow_rows_per_s"] > 0


def test_its_files(tmp_path: Path) -> None:
    size, memory = write_files(tmp_path, 3_001, 2)
    table = pq.read_table(tmp_path)
    assert table.num_rows == 3_001
    assert len(set(table["n"].to_pylist())) == 3_001
    assert memory >= 8 * 3_001
    assert size > 0
    assert decode(tmp_path, 2) > 0
