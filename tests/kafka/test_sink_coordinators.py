"""The coordinator of an exactly-once job on Ray dies: the tasks that run go on, and commit."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chaos_kit import environment, until
from kafka_sink_kit import SinkBroker, exactly_once, values
from ray_chaos_kit import coordinator_pid, ends_with_nothing
from shared_ray import ray_of
from strom import CheckpointConfig, JobConfig
from strom.connectors.datagen import DataGenSource
from strom.connectors.kafka import StringEncoder

pytestmark = [pytest.mark.kafka, pytest.mark.ray, pytest.mark.timeout(600)]

COUNT = 8_000
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(start, start + count))}, schema=SCHEMA)


class Held:
    """Records take their time until there is such a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._mark.exists():
            time.sleep(0.2)
        return batch


def test_tasks_go_on_and_commit_when_the_coordinator_has_died(
    broker: SinkBroker, tmp_path: Path
) -> None:
    """Twice, so that the second one that comes back finds what the first has left as it was."""
    topic, mark = broker.topic(2), tmp_path / "release"
    folder = str(tmp_path / "state")
    checkpoints = CheckpointConfig(interval=timedelta(milliseconds=200), storage=folder)
    env = environment(JobConfig(parallelism=2, batch_size=10, checkpoint=checkpoints), "ray")
    source = DataGenSource(numbers, COUNT, splits=4, schema=SCHEMA, block=10)
    sink = exactly_once(broker.servers, topic, f"died-{topic}", value=StringEncoder("n"))
    env.from_source(source).map_batches(Held(mark)).sink_to(sink).uid("kafka")
    client = env.execute_async("died")
    found = lambda: Counter(int(value or b"") for value in values(broker.servers, topic))
    count = _more_than(found, 0)
    tasks = _tasks(client)
    for _ in range(2):
        former = coordinator_pid(client.get_job_id())
        os.kill(former, signal.SIGKILL)
        until(lambda pid=former: coordinator_pid(client.get_job_id()) != pid, "the next", 90.0)
        count = _more_than(found, _more_than(found, count))
    view = client.view()
    assert _tasks(client) == tasks, view["failures"]
    assert (client.metrics()["restarts"], view["failures"]) == (0, [])
    mark.touch()
    client.get_job_execution_result(timedelta(seconds=120))
    assert found() == Counter(range(COUNT))
    ends_with_nothing()


def _more_than(found: Any, count: int) -> int:
    """How many are in the topic once it has more."""
    return int(until(lambda: n if (n := sum(found().values())) > count else None, "more", 90.0))


def _tasks(client: Any) -> set[tuple[Any, ...]]:
    """Each, with its process and attempt."""
    return {(one["pid"], one["attempt"]) for one in client.view()["tasks"]}
