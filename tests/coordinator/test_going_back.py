"""The newest complete checkpoint of a running job is damaged: go back one more, or fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from strom.api.connectors.builtin_sinks import CollectSink, DiscardSink
from strom.api.specs.records import SinkSpec
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest, Rejected
from strom.core.config import FixedDelayRestart
from strom.core.ids import CheckpointId, TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import (
    CancelAll,
    DeployAll,
    JobEnded,
    LoadLatest,
    StoreCheckpoint,
)
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.messages import CheckpointAcknowledged, TaskRunning

TASKS = (TaskId("source", 0), TaskId("source", 1), TaskId("sink", 0), TaskId("sink", 1))


class NoSplits:
    def next_splits(self, subtask: int) -> None:
        return None

    def snapshot(self) -> Any:
        return None

    def close(self) -> None:
        pass


def of(kind: type, actions: Any) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


class Job:
    """A job with complete checkpoints 1 and 2 whose task was lost and which loads."""

    def __init__(self, graph: Any, sink: Any) -> None:
        import random

        made = graph(FixedDelayRestart(attempts=3), retained=3)
        job = made.job
        vertices = tuple(
            replace(
                vertex,
                operators=tuple(
                    replace(o, spec=SinkSpec(sink)) if o.is_sink else o for o in vertex.operators
                ),
            )
            for vertex in job.vertices
        )
        made = replace(made, job=replace(job, vertices=vertices))
        self.manifests: dict[int, Manifest] = {}
        self.master = JobMaster("job", made, lambda r: {"source": NoSplits()}, random.Random(0))
        self.master.start(0)
        self.master.on_loaded(Latest(None), 0)
        self.run_and_lose(0, (1, 2))

    def run_and_lose(self, attempt: int, checkpoints: tuple[int, ...]) -> None:
        now = 1000 * attempt
        for task in TASKS:
            self.master.on_report(TaskRunning(task, attempt), now)
        for n in checkpoints:
            now += 100
            self.master.on_tick(now)
            for task in TASKS:
                acknowledged = CheckpointAcknowledged(
                    task, attempt, CheckpointId(n), SubtaskSnapshot(task, ())
                )
                stored = of(StoreCheckpoint, self.master.on_report(acknowledged, now))
            self.manifests[n] = stored[0].manifest
            self.master.on_stored(CheckpointId(n), now)
        lost = self.master.on_task_lost(TASKS[0], attempt, "killed", now + 1)
        assert of(CancelAll, lost)
        self.master.on_all_stopped(attempt, now + 2)
        assert of(LoadLatest, self.master.on_tick(now + 500))
        self.now = now + 500

    def load(self, newest: int | None, *rejected: int) -> Any:
        manifest = None if newest is None else self.manifests[newest]
        bad = tuple(Rejected(CheckpointId(n), f"file {n} is torn") for n in rejected)
        ids = tuple(CheckpointId(n) for n in self.manifests)
        return self.master.on_loaded(Latest(manifest, bad, ids), self.now)


def test_the_newest_needs_no_revoking(graph: Any) -> None:
    job = Job(graph, CollectSink())
    assert of(DeployAll, job.load(2)) == [DeployAll(1, job.manifests[2], revoke=False)]


def test_sinks_that_can_take_back_do(graph: Any) -> None:
    job = Job(graph, DiscardSink())
    assert of(DeployAll, job.load(1, 2)) == [DeployAll(1, job.manifests[1], revoke=True)]
    # Lost again before any checkpoint: what was published has still to be taken back.
    job.run_and_lose(1, ())
    assert of(DeployAll, job.load(1, 2)) == [DeployAll(2, job.manifests[1], revoke=True)]
    # But not any more once a newer checkpoint is complete.
    job.run_and_lose(2, (3,))
    assert of(DeployAll, job.load(3)) == [DeployAll(3, job.manifests[3], revoke=False)]


def test_with_other_sinks_the_job_fails_and_says_why(graph: Any) -> None:
    job = Job(graph, CollectSink())
    (ended,) = of(JobEnded, job.load(1, 2))
    assert ended.status is JobStatus.FAILED
    assert "checkpoint 2 cannot be restored: file 2 is torn" in ended.error
    assert "'Collect' cannot take back" in ended.error
    assert "chk-1" in ended.error
    job.master.validate()


@pytest.mark.parametrize("sink", [CollectSink(), DiscardSink()])
@pytest.mark.parametrize("rejected", [(2, 1), ()])
def test_without_any_the_job_fails_and_does_not_begin_anew(
    graph: Any, sink: Any, rejected: tuple[int, ...]
) -> None:
    (ended,) = of(JobEnded, Job(graph, sink).load(None, *rejected))
    assert ended.status is JobStatus.FAILED
    reason = "file 2 is torn; nor can 1: file 1 is torn" if rejected else "gone from the storage"
    assert reason in ended.error


def test_a_hopeless_load_is_not_tried_again(graph: Any) -> None:
    job = Job(graph, CollectSink())
    actions = job.master.on_load_failed("restore_from is torn", job.now, recoverable=False)
    (ended,) = of(JobEnded, actions)
    assert "restore_from is torn" in ended.error
