"""The gateway is killed while a source and a sink use it: both go on, with the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    WriterContext,
)
from strom.connectors.spark import SparkParquetSink, SparkParquetSource
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock

pytestmark = pytest.mark.spark


def test_reading_and_writing_survive_the_loss_of_the_gateway(
    until: Any, input_folder: Path, tmp_path: Path, gateway: Any
) -> None:
    import ray

    clock = SystemClock()
    source = SparkParquetSource(str(input_folder), rows_per_split=1000)
    splits = source.create_enumerator(EnumeratorContext("in", 1, "job"), None)
    reader = source.create_reader(ReaderContext("in", 0, 1, 1000, clock))
    sink = SparkParquetSink(str(tmp_path / "out"))
    context = WriterContext("out", "op", "job", 0, 1, 0, clock, lambda key, value: None, True)
    writer = sink.create_writer(context)

    def step() -> Any:
        match reader.poll():
            case Emit() as emit:
                return (emit,)
            case NeedSplit():
                given = splits.next_splits(0)
                if given is None:
                    return (None,)
                reader.add_splits(given)
        return None

    rows: list[pa.RecordBatch] = []
    former = ray.get(gateway.statistics.remote())["pid"]
    while (emit := until(step, "a batch")[0]) is not None:
        rows.append(emit.batch.data)
        writer.write(ColumnBatch(emit.batch.data))
        if len(rows) == 1:
            ray.kill(gateway, no_restart=False)
    prepared = writer.prepare_commit(1)
    writer.commit(prepared())  # type: ignore[operator]

    assert ray.get(gateway.statistics.remote())["pid"] != former
    assert pa.Table.from_batches(rows)["id"].to_pylist() == list(range(3000))
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == list(range(3000))
