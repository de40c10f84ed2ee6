"""What a plain client finds in topics: the check on what jobs have written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

TIMEOUT_S: Final = 60.0
AT_ONCE: Final = 20_000
PATIENCE_S: Final = 0.2
"""How long to wait for so many."""


def offsets(servers: str, topic: str, partitions: int) -> tuple[int, int]:
    """Sums over the partitions: of first offsets, and of those up to which all is committed."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    client = AdminClient({"bootstrap.servers": servers})
    sums = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        asked = {TopicPartition(topic, part): spec for part in range(partitions)}
        found = client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        sums.append(sum(one.result(TIMEOUT_S).offset for one in found.values()))
    return sums[0], sums[1]


def committed(servers: str, topic: str, partitions: int) -> Iterator[list[Any]]:
    """All records of a topic that nobody writes any more, as messages, some at a time. Only those
    that are committed."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, part, 0) for part in range(partitions)])
        left, heard = partitions, time.monotonic()
        while left:
            messages = consumer.consume(AT_ONCE, PATIENCE_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > TIMEOUT_S:
                raise KafkaException(f"'{topic}': no record and no end within {TIMEOUT_S:.0f} s")
            errors = [message.error() for message in messages if message.error() is not None]
            for error in errors:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
            left -= len(errors)
            yield [message for message in messages if message.error() is None]
    finally:
        consumer.close()
