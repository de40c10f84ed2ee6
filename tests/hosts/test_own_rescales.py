"""A job on the local host whose parallelism follows its load: what its coordinator does by itself,
what is told of it, and when it leaves the job alone."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import until, within
from strom import (
    CheckpointConfig,
    ConfigurationError,
    JobConfig,
    RescaleError,
    StreamExecutionEnvironment,
)
from strom.autoscaling.autoscaler import Autoscaler
from strom.core.autoscaler_config import AutoscalerConfig
from tides import HASTY, TidalSource, Tide, Work

COUNT = 30_000
LOW, HIGH = 10.0, 200.0
WORK_S = 0.003

QUICK = replace(
    HASTY,
    interval=timedelta(seconds=0.2),
    metrics_window=timedelta(seconds=1.5),
    stabilization=timedelta(seconds=0.2),
    scale_down_interval=timedelta(seconds=0.5),
    target_utilization=0.2,
    utilization_max=0.3,
    utilization_min=0.1,
)
"""All tasks share one thread here: what they are busy with together has to fit into that."""


class Job:
    """numbers -> work -> sink, two subtasks each, at the rate of the `tide`."""

    def __init__(self, folder: Path, autoscaler: AutoscalerConfig = QUICK, **settings: Any) -> None:
        self.tide = Tide(folder, LOW)
        settings = {
            "parallelism": 2,
            "checkpoint": CheckpointConfig(timedelta(milliseconds=300)),
            **settings,
        }
        config = JobConfig(
            max_parallelism=4,
            batch_size=10,
            metrics_interval=timedelta(milliseconds=100),
            autoscaler=autoscaler,
            **settings,
        )
        env = StreamExecutionEnvironment.get_execution_environment(config)
        source = env.from_source(TidalSource(self.tide, COUNT, 4), source_name="numbers")
        work = source.rebalance().map(Work(self.tide, WORK_S)).name("work").uid("work")
        self.results: Any = work.execute_and_collect("tides")
        self.client: Any = self.results.client

    def width(self) -> int:
        """Of the work."""
        vertices = self.client.view()["vertices"]
        return next(int(v["parallelism"]) for v in vertices if v["name"].startswith("work"))

    def becomes(self, wanted: Callable[[int], bool]) -> None:
        until(lambda: wanted(self.width()), f"another parallelism, is {self.width()}")

    def acts(self) -> list[dict[str, Any]]:
        acts: list[dict[str, Any]] = self.client.metrics()["autoscaling"]
        return acts

    def finish(self) -> Any:
        """Every record has come out, once."""
        self.tide.set(None)
        values = within(60.0, "the end", lambda: list(self.results))
        assert Counter(values) == Counter(range(COUNT))
        return self.client.get_job_execution_result()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes jobs, of which none is left."""
    jobs: list[Job] = []

    def make(*arguments: Any, **settings: Any) -> Job:
        jobs.append(Job(tmp_path, *arguments, **settings))
        return jobs[-1]

    yield make
    for job in jobs:
        job.client.cancel()


def test_parallelism_follows_the_load_and_output_is_exact(
    start: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strom")
    job = start()
    job.becomes(lambda width: width == 1)
    job.tide.set(HIGH)
    job.becomes(lambda width: width >= 3)
    job.tide.set(LOW)
    job.becomes(lambda width: width == 1)
    result = job.finish()
    acts = result.metrics["autoscaling"]
    assert result.metrics["restarts"] == 0
    assert sum(act["outcome"] == "DONE" for act in acts) == result.metrics["rescales"] >= 3
    assert job.client.view()["autoscaling"] == acts
    said = [record.getMessage() for record in caplog.records]
    done = [line for line in said if "is rescaled for its load" in line]
    assert len(done) == result.metrics["rescales"]
    assert any(" 1 -> " in line and "are to be handled" in line for line in done)


def test_advice_is_told_and_changes_nothing(start: Callable[..., Job]) -> None:
    job = start(replace(QUICK, scaling=False))
    until(lambda: job.acts() and job.acts()[-1]["times"] > 1, "advice, twice")
    assert {act["outcome"] for act in job.acts()} == {"ADVICE"}
    assert job.width() == 2
    assert job.finish().metrics["rescales"] == 0


def by_hand(job: Job, parallelism: int) -> Any:
    """What came of it; None: the job is just being rescaled by itself."""
    try:
        return job.client.rescale(parallelism).result(60)
    except RescaleError:
        return None


def test_a_rescale_by_hand_is_another_start(start: Callable[..., Job]) -> None:
    """What somebody wants is had, and the load decides again from there."""
    job = start()
    job.becomes(lambda width: width == 1)
    made = until(lambda: by_hand(job, 3), "a rescale by hand")
    assert set(made.after.values()) == {3}
    job.becomes(lambda width: width == 1)
    assert job.finish().metrics["restarts"] == 0


def test_it_needs_periodic_checkpoints_and_no_storage(start: Callable[..., Job]) -> None:
    """Without them sinks publish at once, which a rescale would do again."""
    with pytest.raises(ConfigurationError, match=r"execution\.checkpointing\.interval"):
        start(checkpoint=CheckpointConfig())
    job = start(replace(QUICK, scaling=False), checkpoint=CheckpointConfig())
    job.finish()


def test_a_job_of_one_subtask_each_says_why_nothing_is_done(
    start: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    job = start(parallelism=1)
    (said,) = [r.getMessage() for r in caplog.records if "can get another" in r.getMessage()]
    assert "planned for the parallelism 1" in said
    assert "parallelism.default of 2 or more" in said
    fixed = {vertex["fixed"] for vertex in job.client.view()["vertices"]}
    assert fixed == {"it was planned for the parallelism 1, and its plan may rely on it"}
    job.finish()


def test_without_it_nothing_is_told(start: Callable[..., Job]) -> None:
    job = start(AutoscalerConfig())
    assert job.acts() is None
    assert "autoscaling" not in job.client.view()
    job.finish()


def test_an_autoscaler_that_breaks_does_not_break_the_job(
    start: Callable[..., Job], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("odd figures")

    monkeypatch.setattr(Autoscaler, "observe", broken)
    job = start()
    until(lambda: "is off from now on" in caplog.text, "the line in the log")
    assert job.finish().metrics["rescales"] == 0
    assert "odd figures" in caplog.text
    assert caplog.text.count("is off from now on") == 1
