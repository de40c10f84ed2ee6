"""Two pipelines in one job on Ray, of which one goes on at another parallelism."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, until, within
from leashed_source import LeashedNumbers
from ray_chaos_kit import coordinator_pid, ends_with_nothing
from shared_ray import ray_of
from strom.benchmarks.regions import NUMBERS, Notes, Noting, numbers, read_numbers
from strom.connectors.files import FileSink
from strom.core.errors import TransportError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

COUNT = 160_000

PAUSE_MS = 50

NAMES = ("first", "second")

Tasks = dict[tuple[str, int], tuple[int, int]]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


class Job:
    """source -> what notes when which numbers came -> files, twice; until it is `finish`ed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "notes").mkdir()
        quiet = {"interval_ms": 500, "metrics_interval": timedelta(seconds=0.5)}
        env = environment(config(root / "state", batch_size=20, **quiet), "ray")
        for i, name in enumerate(NAMES):
            release, more = root / "release", {"splits": 6, "block": 10, "schema": NUMBERS}
            source = LeashedNumbers(release, PAUSE_MS, numbers, COUNT, **more)
            read = env.from_source(source, source_name=name).uid(name).rebalance()
            noted = read.map_batches(Noting(str(root / "notes"), i)).name(f"{name} notes")
            noted.uid(f"{name} notes").sink_to(FileSink(root / name))
        self.client: Any = env.execute_async("pipelines")

    def tasks(self) -> tuple[Tasks, Tasks]:
        """Of each subtask of the two its attempt and process, once all of the job run."""

        def found() -> Any:
            with suppress(TransportError):  # the machine is busy: ask again
                view = self.client.view()
                running = all(t["status"] == "RUNNING" and t["pid"] for t in view["tasks"])
                return running and tuple(of(view, name) for name in NAMES)

        def of(view: Any, name: str) -> Tasks:
            mine = {v["id"] for v in view["vertices"] if v["name"].startswith(name)}
            return {
                (t["vertex"], t["subtask"]): (t["attempt"], t["pid"])
                for t in view["tasks"]
                if t["vertex"] in mine
            }

        first, second = until(found, "all tasks", 90.0)
        return first, second

    def finish(self) -> None:
        (self.root / "release").touch()
        result = within(120.0, "the end", self.client.get_job_execution_result)
        assert result.restarts == 0
        for name in NAMES:
            assert sorted(read_numbers(self.root / name)) == list(range(COUNT))


def test_the_other_one_goes_on(tmp_path: Path) -> None:
    """It keeps its processes and attempts, and its records come while there are none of the first
    one."""
    job = Job(tmp_path)
    metrics = job.client.metrics
    until(lambda: metrics()["checkpoints"]["completed"] > 1, "two checkpoints", 60.0)
    first, second = job.tasks()
    asked = time.time()
    made = job.client.rescale({"first": 3, "first notes": 3}).result(60)
    done = time.time()
    assert (made.stopped_tasks, made.kept_tasks) == (4, 4)
    assert made.silence < timedelta(seconds=30)
    completed = metrics()["checkpoints"]["completed"]
    until(lambda: metrics()["checkpoints"]["completed"] > completed, "another checkpoint", 60.0)
    moved, still = job.tasks()
    assert still == second
    assert len(moved) == 6
    assert {pid for _, pid in first.values()} < {pid for _, pid in moved.values()}
    job.finish()
    ends_with_nothing()

    mine, others = (Notes.of(tmp_path / "notes", i) for i in range(2))
    times = [at for at in mine.times if asked - 1 < at < done + 1]
    began, ended = max(pairwise(times), key=lambda pair: pair[1] - pair[0])
    during = [at for at in others.times if began < at < ended]
    assert len(during) > 3, (began, ended, others.times)


def test_the_other_one_goes_on_when_the_coordinator_dies_meanwhile(tmp_path: Path) -> None:
    """Right behind the moment when three are written down: the next one goes on with both."""
    job = Job(tmp_path)
    metrics = job.client.metrics
    until(lambda: metrics()["checkpoints"]["completed"] > 1, "two checkpoints", 60.0)
    _, second = job.tasks()
    job_id = str(job.client.get_job_id())
    former = coordinator_pid(job_id)
    record = tmp_path / "state" / ".coordinators" / job_id / "term.json"
    asked = job.client.rescale({"first": 3, "first notes": 3})
    until(lambda: json.loads(record.read_bytes())["left"]["former"], "the new parallelism", 60.0)
    os.kill(former, signal.SIGKILL)
    asked.result(120)
    moved, still = job.tasks()
    assert still == second
    assert len(moved) == 6
    assert metrics()["restarts"] == 0
    assert coordinator_pid(job_id) != former
    job.finish()
    ends_with_nothing()
