"""Spark is lost, wholly and then an executor of it, while a query, a Kafka source, and a Parquet
source and sink use it: all go on, with the same rows. One job for each and two losses for all, as
every start of Spark takes seconds; and last, for the others need one that runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom import RestartStrategies, StreamExecutionEnvironment
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    WriterContext,
)
from strom.connectors.files import ParquetSink
from strom.connectors.spark import (
    SparkKafkaSource,
    SparkParquetSink,
    SparkParquetSource,
    from_streaming_dataframe,
)
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Job:
    """Rows of ten ids each go in, and come out in a folder. It must not restart."""

    def __init__(self, folder: Path, until: Any) -> None:
        self.folder = folder
        folder.mkdir()
        self._until = until
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.env.set_parallelism(1)
        self.env.enable_checkpointing(
            timedelta(milliseconds=100), storage=str(folder / "checkpoints")
        )
        self.env.set_restart_strategy(RestartStrategies.no_restart())

    def start(self, stream: Any) -> None:
        stream.sink_to(ParquetSink(self.folder / "out"))
        self._client = self.env.execute_async(self.folder.name)

    def wait(self, rounds: int, when: str) -> None:
        """For the rows of so many rounds."""
        expected = list(range(rounds * 10))
        self._until(lambda: self._ids() == expected, f"{self.folder.name}: the rows {when}")

    def cancel(self) -> None:
        self._client.cancel()

    def _ids(self) -> list[int]:
        out = self.folder / "out"
        files = [file for file in out.glob("*.parquet") if not file.name.startswith(".")]
        return sorted(n for file in files for n in pq.ParquetFile(file).read()["id"].to_pylist())


class QueryJob(Job):
    """A streaming query that the gateway runs."""

    def __init__(self, folder: Path, until: Any) -> None:
        super().__init__(folder, until)
        source = self._source = folder / "in"
        source.mkdir()

        def build(spark: Any) -> Any:
            return spark.readStream.schema("id BIGINT").json(str(source))

        self.start(from_streaming_dataframe(self.env, build, folder / "spool"))

    def put(self, number: int) -> None:
        rows = "\n".join(f'{{"id": {n}}}' for n in range(number * 10, number * 10 + 10))
        hidden = self._source / f".{number}"
        hidden.write_text(rows)
        hidden.rename(self._source / f"{number}.json")


class KafkaJob(Job):
    """A topic that Spark's executors read."""

    def __init__(self, folder: Path, until: Any, kafka: Any) -> None:
        from confluent_kafka import Producer

        super().__init__(folder, until)
        kafka.create_topic("lost")
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        select = ["CAST(CAST(value AS STRING) AS BIGINT) AS id"]
        schema = pa.schema({"id": pa.int64()})
        source = SparkKafkaSource(kafka.bootstrap_servers, "lost", select=select, schema=schema)
        self.start(self.env.from_source(source))

    def put(self, number: int) -> None:
        for n in range(number * 10, number * 10 + 10):
            self._producer.produce("lost", str(n))
        assert self._producer.flush(30) == 0


class Copy:
    """Parquet read through Spark and written through it, split by split."""

    def __init__(self, source: Path, target: Path, until: Any) -> None:
        clock = SystemClock()
        reading = SparkParquetSource(str(source), rows_per_split=1000)
        self._splits = reading.create_enumerator(EnumeratorContext("in", 1, "job"), None)
        self._reader = reading.create_reader(ReaderContext("in", 0, 1, 1000, clock))
        context = WriterContext("out", "op", "job", 0, 1, 0, clock, lambda key, value: None, True)
        self._writer = SparkParquetSink(str(target)).create_writer(context)
        self._target = target
        self._until = until
        self._ids: list[int] = []

    def step(self) -> None:
        """Read a batch, and hand it to the sink."""
        emit = self._until(self._polled, "a batch")
        self._ids += emit.batch.data["id"].to_pylist()
        self._writer.write(ColumnBatch(emit.batch.data))

    def publish(self, checkpoint_id: int) -> None:
        """What was read must be in the target then."""
        prepared = self._writer.prepare_commit(checkpoint_id)
        assert callable(prepared)
        self._writer.commit(prepared())
        assert sorted(pq.read_table(self._target)["id"].to_pylist()) == self._ids

    def check_end(self) -> None:
        assert self._ids == list(range(3000))
        assert isinstance(self._reader.poll(), NeedSplit)
        assert self._splits.next_splits(0) is None

    def _polled(self) -> Emit | None:
        match self._reader.poll():
            case Emit() as emit:
                return emit
            case NeedSplit():
                self._reader.add_splits(self._splits.next_splits(0) or ())
        return None


@pytest.mark.soak
def test_all_that_uses_spark_survives_its_loss(
    gateway: Any, kafka: Any, until: Any, input_folder: Path, tmp_path: Path
) -> None:
    import ray

    jobs = [QueryJob(tmp_path / "query", until), KafkaJob(tmp_path / "topic", until, kafka)]
    copy = Copy(input_folder, tmp_path / "copy", until)

    def go_on(number: int, when: str) -> None:
        for job in jobs:
            job.put(number)
        if number:
            copy.publish(number)  # read before the loss
        copy.step()
        for job in jobs:
            job.wait(number + 1, when)

    go_on(0, "before any loss")
    former = ray.get(gateway.statistics.remote())["pid"]
    ray.kill(gateway, no_restart=False)
    go_on(1, "after the gateway's loss")
    assert ray.get(gateway.statistics.remote())["pid"] != former
    executors = [name for name in ray.util.list_named_actors() if "raydp-executor" in name]
    ray.kill(ray.get_actor(max(executors)), no_restart=False)
    go_on(2, "after the executor's loss")
    copy.publish(3)
    copy.check_end()
    for job in jobs:
        job.cancel()
