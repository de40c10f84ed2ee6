"""History from files, and then a topic of a real broker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos_kit import config, environment, gather
from kafka_kit import Broker, Sent
from strom import FixedDelayRestart, WatermarkStrategy
from strom.connectors.files import FileSource
from strom.connectors.hybrid import HybridSource
from strom.connectors.kafka import JsonFormat, KafkaOffsetsInitializer, KafkaSource
from strom.core.errors import ConfigurationError

pytestmark = pytest.mark.kafka

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize("made", [False, True], ids=["given", "by a factory"])
def test_files_and_then_a_topic_exactly_once(broker: Broker, tmp_path: Path, made: bool) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):
        table = pa.table({"n": range(100 * i, 100 * i + 100)}, SCHEMA)
        pq.write_table(table, tmp_path / "in" / f"{i}.parquet", row_group_size=30)
    topic = broker.topic(3)
    ns = range(300, 600)
    broker.send(topic, [Sent(b'{"n": %d}' % n, partition=n % 3) for n in ns])
    live = KafkaSource(
        broker.servers,
        topic,
        value=JsonFormat(SCHEMA),
        stop=KafkaOffsetsInitializer.latest(),
        discovery_interval=timedelta(milliseconds=50),
    )
    builder = HybridSource.builder(FileSource(tmp_path / "in"))
    following: Any = (lambda previous: live) if made else live
    source = builder.add_source(following, bounded=True).build()
    env = environment(
        config(restart=FixedDelayRestart(3, timedelta(milliseconds=10)), batch_size=9)
    )
    env.enable_checkpointing(timedelta(milliseconds=20), storage=str(tmp_path / "checkpoints"))
    flag = tmp_path / "failed"

    def fail_once(row: Any) -> Any:
        if row.n == 450 and not flag.exists():
            flag.touch()
            raise RuntimeError("in the middle of the topic")
        return row.n

    numbers = env.from_source(source, WatermarkStrategy.no_watermarks()).map(fail_once)
    assert sorted(gather(numbers)) == list(range(600))
    assert flag.exists()


def test_a_topic_without_end_is_the_last(broker: Broker) -> None:
    live = KafkaSource(broker.servers, broker.topic(), value=JsonFormat(SCHEMA))
    with pytest.raises(ConfigurationError, match=r"source 1 of 2 \(KafkaSource\) never ends"):
        HybridSource.builder(live).add_source(live).build()
