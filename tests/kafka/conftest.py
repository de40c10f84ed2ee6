"""One real broker for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_kit import Broker
from strom.testing.kafka import KafkaCluster


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with KafkaCluster() as cluster:
        yield Broker(cluster)


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Callable[..., Broker]]:
    """Makes brokers that a test may stop or break; all end with the module."""
    clusters: list[KafkaCluster] = []

    def make(**options: Any) -> Broker:
        cluster = KafkaCluster(**options)
        clusters.append(cluster)
        cluster.start()
        return Broker(cluster)

    yield make
    for cluster in clusters:
        cluster.stop()
