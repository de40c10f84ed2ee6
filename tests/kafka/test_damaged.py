"""Records that are in the log and cannot be read: bytes of a partition's file are overwritten, and
the broker serves them as they are. The library passes over some of them and reads on, and asks for
others for ever."""

from __future__ import annotations

import pytest
from kafka_kit import Broker, Reading
from strom import ConnectorError
from strom.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, SimpleStringSchema

pytestmark = pytest.mark.kafka

LENGTH, MAGIC, ATTRIBUTES, RECORDS = 8, 16, 21, 61
"""Where these stand in a batch of records: its length behind this field, its version, 16 bits
whose last three are the compression, the first record."""

GZIP = 1


def damaged(broker: Broker, at: int, value: int) -> str:
    """A topic of 0..2, a batch of 3, and 4..6, with a byte of that batch overwritten."""
    topic = broker.topic()
    for first, last in ((0, 3), (3, 4), (4, 7)):
        broker.send(topic, [b"%d" % n for n in range(first, last)])
    path = broker.log_of(topic, 0)
    data = path.read_bytes()
    second = 0
    while data[second + 7] != 3:  # offsets stand first; a busy producer may cut the first batch
        second += 12 + int.from_bytes(data[second + LENGTH : second + LENGTH + 4], "big")
    with path.open("r+b") as file:
        file.seek(second + at)
        file.write(bytes([value]))
    return topic


@pytest.mark.parametrize(
    ("at", "value", "checked", "says"),
    [
        (RECORDS + 6, 0xFF, True, "_BAD_MSG"),
        (MAGIC, 7, True, "_NOT_IMPLEMENTED"),
        (ATTRIBUTES + 1, GZIP, False, "_BAD_COMPRESSION"),
    ],
    ids=["checksum", "version", "compression"],
)
def test_damaged_records_fail_the_job(
    broker: Broker, at: int, value: int, checked: bool, says: str
) -> None:
    topic = damaged(broker, at, value)
    properties = {} if checked else {"check.crcs": "false"}
    source = KafkaSource(broker.servers, topic, value=SimpleStringSchema(), properties=properties)
    reading = Reading(source, batch_size=3)
    reading.ask()
    with pytest.raises(ConnectorError, match=rf"{topic}-0 .* offset 3 .*cannot be read.*{says}"):
        reading.until(lambda: len(reading.rows) > 3, 10.0)
    assert reading.rows == ["0", "1", "2"], "nothing behind them"
    reading.close()


def test_what_is_damaged_behind_the_stop_is_not_asked_for(broker: Broker) -> None:
    topic = damaged(broker, MAGIC, 7)
    stop = KafkaOffsetsInitializer.offsets({(topic, 0): 3})
    source = KafkaSource(broker.servers, topic, value=SimpleStringSchema(), stop=stop)
    assert Reading(source).to_the_end() == ["0", "1", "2"]
