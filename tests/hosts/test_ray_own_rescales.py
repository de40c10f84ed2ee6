"""A job on Ray whose parallelism follows its load: up where one subtask of a slow map is not
enough, down where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import until, within
from ray_chaos_kit import ends_with_nothing
from shared_ray import ray_of
from strom import CheckpointConfig, JobConfig, StreamExecutionEnvironment
from tides import HASTY, TidalSource, Tide, Work

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

COUNT = 60_000
LOW, HIGH = 20.0, 160.0
WORK_S = 0.009
"""One subtask does about 110 records/s."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def test_it_goes_down_up_and_down_and_its_output_is_exact(tmp_path: Path) -> None:
    tide = Tide(tmp_path, LOW)
    config = JobConfig(
        parallelism=2,
        max_parallelism=3,
        batch_size=10,
        slot_cpus=0.5,
        metrics_interval=timedelta(milliseconds=200),
        checkpoint=CheckpointConfig(timedelta(seconds=1), str(tmp_path / "state"), unaligned=True),
        autoscaler=replace(HASTY, excluded=("numbers",)),
    )
    env = StreamExecutionEnvironment.get_execution_environment(config, host="ray")
    numbers = env.from_source(TidalSource(tide, COUNT, 2), source_name="numbers")
    work = numbers.rebalance().map(Work(tide, WORK_S)).name("work")
    results: Any = work.execute_and_collect("tides")
    client = results.client

    def widths() -> dict[str, int]:
        return {v["name"].split()[0]: v["parallelism"] for v in client.view()["vertices"]}

    until(lambda: widths()["work"] == 1, "one subtask of the work", 60.0)
    tide.set(HIGH)
    until(lambda: widths()["work"] >= 2, "more", 60.0)
    tide.set(LOW)
    until(lambda: widths()["work"] == 1, "one again", 60.0)
    assert widths()["numbers"] == 2, "it is excluded"
    tide.set(None)
    values = within(60.0, "the end", lambda: list(results))
    assert Counter(values) == Counter(range(COUNT))
    metrics = client.get_job_execution_result().metrics
    done = [act for act in metrics["autoscaling"] if act["outcome"] == "DONE"]
    assert len(done) == metrics["rescales"] >= 3
    assert metrics["restarts"] == 0
    assert " 1 -> " in done[1]["text"]
    ends_with_nothing()
