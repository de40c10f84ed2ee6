"""The reader with which tests look at what sinks have written."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from kafka_kit import Broker
from kafka_sink_kit import read

pytestmark = pytest.mark.kafka


def test_a_topic_that_goes_on_is_read_to_where_it_ended_at_first(broker: Broker) -> None:
    """Transactions come every few ms, so that the broker always has more to give."""
    from confluent_kafka import Producer

    topic, over = broker.topic(2), threading.Event()
    settings = {"bootstrap.servers": broker.servers, "linger.ms": 0, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(30.0)
    n = 0

    def write() -> None:
        nonlocal n
        while not over.is_set():
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(topic, value=str(n).encode(), partition=partition)
            producer.commit_transaction(30.0)
            n += 1
            time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while n < 5:
            time.sleep(0.01)
        before = n
        found = read(broker.servers, topic, seconds=10.0)
    finally:
        over.set()
        writer.join()
    values = Counter(record.value for record in found)
    assert [values[str(at).encode()] for at in range(before)] == [2] * before
    assert len(read(broker.servers, topic)) == 2 * n
