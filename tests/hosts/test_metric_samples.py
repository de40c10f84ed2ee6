"""A job's figures as samples: what they are called, which labels they have, and that no two are the
same."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest
from strom.benchmarks.coordinator_tasks import program
from strom.checkpoint.coordinator_types import CheckpointStatistics
from strom.core.ids import Attempt, TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.job_state import JobState
from strom.engine.hosts import metric_samples
from strom.engine.hosts.metric_samples import Sample, samples_of

JOB = program(20)
VERTEX = JOB.vertices[1]
FIGURES: dict[str, Any] = {
    "records_in": 5,
    "records_out": 4,
    "in_rate": 1.0,
    "out_rate": 2.0,
    "input_watermark": None,
    "watermark": 7,
    "counters": {},
    "gauges": {},
}
DISTRIBUTION = {"count": 2, "sum": 6, "min": 2, "max": 4, "latest": [2.0, 4.0]}


def samples(**figures: Any) -> list[Sample]:
    """Of two subtasks, each of which reports these of its operator."""
    operator = VERTEX.operators[0].operator_id
    report = {"state": "running", "times": {"busy": 3}, "operators": {operator: FIGURES | figures}}
    metrics = {TaskId(VERTEX.id, subtask): report for subtask in (1, 0)}
    checkpoints = CheckpointStatistics(completed=9)
    running, first = JobStatus.RUNNING, Attempt(0)
    state = JobState("j", "job", running, first, 2, 20, 20, checkpoints, None, metrics)
    return list(samples_of(state, JOB, 12.5))


def called(found: list[Sample], name: str) -> list[tuple[dict[str, str], float]]:
    return [(dict(one.labels), one.value) for one in found if one.name == name]


def test_the_figures_of_job_task_and_operator() -> None:
    found = samples()
    job = {"job_id": "j", "job_name": "job"}
    assert called(found, "job_numRestarts") == [(job, 2.0)]
    assert called(found, "job_numRunningTasks") == [(job, 2.0)]
    assert called(found, "job_uptime") == [(job, 12.5)]
    assert called(found, "job_numberOfCompletedCheckpoints") == [(job, 9.0)]
    assert called(found, "job_lastCheckpointSize") == [], "it is not known"
    task = {"task_id": VERTEX.id, "task_name": VERTEX.name}
    assert called(found, "task_busy") == [
        ({**job, **task, "subtask_index": index}, 3.0) for index in "01"
    ]
    operator = VERTEX.operators[0]
    names = {"operator_id": operator.operator_id, "operator_name": operator.name}
    assert called(found, "operator_numRecordsIn") == [
        ({**job, **names, "subtask_index": index}, 5.0) for index in "01"
    ]
    assert all(list(one.labels) == sorted(one.labels) for one in found)


def test_values_of_variables_are_labels_and_those_of_strom_win() -> None:
    variables = (("city", "berlin"), ("job_id", "mine"))
    scopes = {"city.berlin.n": ("city.n", variables), "sizes": ("sizes", variables)}
    found = samples(
        counters={"city.berlin.n": 3}, distributions={"sizes": DISTRIBUTION}, scopes=scopes
    )
    assert [value for _, value in called(found, "operator_city_n")] == [3.0, 3.0]
    labels, most = called(found, "operator_sizes_max")[0]
    assert (labels["city"], labels["job_id"], most) == ("berlin", "j", 4.0)
    by_quantile = {labels["quantile"]: value for labels, value in called(found, "operator_sizes")}
    assert by_quantile == {"0.5": 3.0, "0.75": 3.5, "0.95": 3.9, "0.99": 3.98}


@pytest.mark.parametrize("variables", [(), (("job_id", "mine"),), (("city", "berlin"),)])
def test_of_two_that_are_the_same_the_first_counts_and_it_is_said_once(
    variables: tuple[tuple[str, str], ...],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where a variable that makes them differ is called as a label of strom's."""
    monkeypatch.setattr(metric_samples, "_clashes", set())
    scopes = {"a b": ("a b", variables), "a-b": ("a-b", ())} if variables else {}
    found = samples(counters={"a-b": 1, "a b": 2}, scopes=scopes)
    apart = variables == (("city", "berlin"),)
    values = sorted(value for _, value in called(found, "operator_a_b"))
    assert values == ([1.0, 1.0, 2.0, 2.0] if apart else [1.0, 1.0])
    assert len(set(found)) == len(found)
    assert len(caplog.records) == (0 if apart else 1)


def test_they_are_not_kept() -> None:
    """Those of a large job are made one by one."""
    state = JobState(
        "j", "job", JobStatus.RUNNING, Attempt(0), 0, 0, 0, CheckpointStatistics(), None, {}
    )
    assert isinstance(samples_of(state, JOB, 0.0), GeneratorType)
