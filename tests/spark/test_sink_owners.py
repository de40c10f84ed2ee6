"""Whose work a Delta table and a folder of Spark's have: one checkpoint that is restored twice is
there once."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.api.connectors.base import OutputClaim, WriterContext
from strom.connectors.spark import SparkDeltaSink, SparkParquetSink
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock
from strom.core.errors import FencedError, OutputRefusedError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("gateway"),
]


def claim(job: str, origin: tuple[str, int] | None = None, epoch: int = 1) -> OutputClaim:
    return OutputClaim(job, "copy", "out", "op-1", f"token-{job}", "elsewhere", origin, epoch)


class Job:
    """A sink as one job has it."""

    def __init__(self, sink: Any, claim: OutputClaim) -> None:
        self.said = list(sink.take_over(claim))
        self.token = sink.writers_token(claim)
        context = WriterContext(
            "out",
            "op-1",
            claim.job_id,
            0,
            1,
            0,
            SystemClock(),
            lambda key, value: None,
            True,
            token=self.token,
        )
        self.writer = sink.create_writer(context)

    def prepared(self, checkpoint: int, number: int) -> Any:
        self.writer.write(ColumnBatch(pa.record_batch({"n": pa.array([number], pa.int64())})))
        made = self.writer.prepare_commit(checkpoint)
        return pickle.loads(pickle.dumps(made() if callable(made) else made))

    def publishes(self, checkpoint: int, number: int) -> None:
        self.writer.commit(self.prepared(checkpoint, number))


@pytest.mark.soak
def test_a_delta_tables_work_is_taken_over_and_taken_back(gateway: Any, tmp_path: Path) -> None:
    import ray

    table = f"delta.`{tmp_path / 't'}`"
    sql = lambda text: ray.get(gateway.sql.remote(text)).to_pylist()
    rows = lambda: sorted(row["n"] for row in sql(f"SELECT n FROM {table}"))
    sink = lambda: SparkDeltaSink(str(tmp_path / "t"))
    first, stranger = Job(sink(), claim("a")), Job(sink(), claim("s"))
    first.publishes(1, 1)
    held, late = first.prepared(2, 2), first.prepared(3, 3)
    stranger.publishes(1, 100)
    # A coordinator that comes back goes on with the writers that run, as long as it is theirs.
    assert (
        Job(sink(), replace(claim("a", epoch=2), shown=frozenset({first.token}))).token
        == first.token
    )
    second = Job(sink(), claim("b", ("a", 2)))
    assert second.said == []
    with pytest.raises(FencedError, match="nothing is added to the Delta table"):
        first.writer.commit(late)
    second.writer.recover(held)
    second.publishes(1, 3)
    third = Job(sink(), claim("c", ("a", 2)))
    assert len(third.said) == 1
    assert "removed 1 files from the Delta table" in third.said[0]
    assert "that job b added behind the checkpoint" in third.said[0]
    with pytest.raises(FencedError):
        second.publishes(2, 4)
    third.writer.recover(held)
    third.publishes(1, 3)
    stranger.publishes(2, 101)
    back = Job(sink(), replace(claim("c", epoch=2), shown=frozenset({third.token})))
    assert back.token == third.token
    # Another one of the same job, which goes on with nobody, fences the one before.
    again = Job(sink(), replace(claim("c", epoch=2), shown=frozenset({second.token})))
    with pytest.raises(FencedError):
        third.publishes(2, 4)
    again.publishes(2, 4)
    assert rows() == [1, 2, 3, 4, 100, 101]
    sql(f"OPTIMIZE {table}")
    with pytest.raises(OutputRefusedError, match=r"would be there twice: .* was rewritten"):
        Job(sink(), claim("d", ("a", 2)))


def test_a_folder_of_sparks_is_one_jobs(tmp_path: Path) -> None:
    sink = SparkParquetSink(str(tmp_path))
    first = Job(sink, claim("a"))
    first.publishes(1, 1)
    held, late = first.prepared(2, 2), first.prepared(3, 3)
    with pytest.raises(OutputRefusedError, match=r"SparkParquetSink\(..., take_over=True\)"):
        Job(sink, claim("s"))
    second = Job(sink, claim("b", ("a", 2)))
    with pytest.raises(FencedError, match=r"\(b, elsewhere\) has taken it over"):
        first.writer.commit(late)
    second.writer.recover(held)
    second.publishes(1, 3)
    third = Job(sink, claim("c", ("a", 2)))
    assert [said.partition(" from")[0] for said in third.said] == ["removed 1 files"]
    third.writer.recover(held)
    third.publishes(1, 3)
    assert sorted(pq.read_table(tmp_path)["n"].to_pylist()) == [1, 2, 3]
