"""Jobs whose sinks fail to commit: exactly once all the same, or an end that says why."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from drawn_ways import assert_equivalent
from strom import (
    CheckpointConfig,
    CommitError,
    ExponentialDelayRestart,
    JobConfig,
    JobFailedError,
    Sink,
    SinkWriter,
    StreamExecutionEnvironment,
)
from strom.api.connectors.builtin_sinks import CollectSink
from strom.core.commit_config import CommitConfig
from strom.core.job_status import JobStatus
from strom.testing.equivalence import Ways


class ShakyWriter(SinkWriter):
    """What it publishes fails now and then, before anything is published or behind that, at once or
    behind a step."""

    def __init__(self, context: Any) -> None:
        self._inner = CollectSink().create_writer(context)
        self._rng = random.Random(f"{context.subtask}-{context.attempt}")
        self._chance = 0.3 if context.checkpointing else 0.0

    def write(self, batch: Any) -> Any:
        return self._inner.write(batch)

    def prepare_commit(self, checkpoint_id: int) -> Any:
        return self._inner.prepare_commit(checkpoint_id)

    def commit(self, committables: Sequence[Any]) -> Iterator[None] | None:
        if self._rng.random() < self._chance:
            raise ConnectionResetError("before")
        if self._rng.random() < 0.5:
            return self._steps(committables)
        self._inner.commit(committables)
        return None

    def _steps(self, committables: Sequence[Any]) -> Iterator[None]:
        yield
        self._inner.commit(committables)
        if self._rng.random() < self._chance:
            raise TimeoutError("behind: its answer was lost")


class ShakySink(Sink):
    def create_writer(self, context: Any) -> SinkWriter:
        return ShakyWriter(context)


def test_what_fails_now_and_then_is_published_exactly_once(readings: Any) -> None:
    """At checkpoints, after restores, behind a stop's savepoint and at the end, between crashes."""

    def build(env: Any) -> Any:
        return readings.rows(env).map(lambda r: (r.k, r.v)).sink_to(ShakySink())

    expected = [(r.k, r.v) for r in readings.all]
    assert_equivalent(build, expected, Ways(seeds=range(2), local=False))


class Stuck(SinkWriter):
    """Never commits; leaves a mark in the folder when it has tried."""

    def __init__(self, folder: Path, error: Exception) -> None:
        self._folder, self._error = folder, error

    def write(self, batch: Any) -> None:
        pass

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        return ["records"]

    def commit(self, committables: Sequence[Any]) -> None:
        (self._folder / f"tried-{time.monotonic_ns()}").touch()
        raise self._error


class StuckSink(Sink):
    def __init__(self, folder: Path, error: Exception) -> None:
        self._made = folder, error

    def create_writer(self, context: Any) -> SinkWriter:
        return Stuck(*self._made)


def started(folder: Path, error: Exception) -> Any:
    config = JobConfig(
        checkpoint=CheckpointConfig(interval=timedelta(milliseconds=20)),
        commit=CommitConfig(delay=timedelta(hours=1), longest_delay=timedelta(hours=1)),
        restart=ExponentialDelayRestart(initial=timedelta(milliseconds=1)),
    )
    if not isinstance(error, CommitError):
        config = _patient(config)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection(list(range(10))).sink_to(StuckSink(folder, error)).name("stuck")
    return env.execute_async("stuck")


def _patient(config: JobConfig) -> JobConfig:
    from dataclasses import replace

    return replace(config, commit=replace(config.commit, timeout=timedelta(hours=9)))


def test_what_cannot_be_done_ends_the_job_whatever_it_restarts_by(tmp_path: Path) -> None:
    client = started(tmp_path, CommitError("the topic is gone"))
    with pytest.raises(JobFailedError, match="the topic is gone") as failed:
        client.get_job_execution_result(timedelta(seconds=60))
    assert "operator 'stuck', subtask 0: the commit of checkpoint 1 failed" in str(failed.value)
    assert "Published: perhaps some of 1 committable of checkpoint 1" in str(failed.value)
    assert "Not published: the others of checkpoint 1" in str(failed.value)
    assert len(list(tmp_path.glob("tried-*"))) == 1


def test_a_cancel_does_not_wait_for_the_next_try(tmp_path: Path) -> None:
    client = started(tmp_path, TimeoutError("no answer"))
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("tried-*")):
        assert time.monotonic() < deadline, "nobody committed"
        time.sleep(0.01)
    assert client.get_job_status() is JobStatus.RUNNING, "its end waits for the commit"
    client.cancel()
    assert client.get_job_status() is JobStatus.CANCELED
