"""What senders see of keys is what comes, and what a job says of it puts all of them together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from strom.core.config import JobConfig
from strom.core.ids import OperatorId, TaskId, VertexId
from strom.core.keys import ColumnKey
from strom.engine.exchange.key_load import EVERY, HALF_LIFE, PER_REPORT, ROWS, KeyLoad
from strom.engine.graph.model import ChainedOperator, JobEdge, JobGraph, JobVertex, KeyGroups
from strom.engine.hosts.key_figures import key_figures
from strom.state.key_groups import key_group, subtask_table

RNG = np.random.default_rng(5)


def batch_of(rows: int) -> list[str]:
    """A third of the keys are hot, the others come once in a thousand."""
    others = RNG.integers(0, 1000, rows)
    return [f"k{n}" if n % 3 else "hot" for n in others.tolist()]


def columns(keys: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"k": keys})


def test_loads_and_hot_keys_are_those_of_all_records_by_columns_and_by_keys() -> None:
    by_column, by_key = KeyLoad(128, 8, 0), KeyLoad(128, 8, 1)
    for _ in range(60):
        keys = batch_of(4096)
        by_column.saw_columns(columns(keys))
        by_key.saw_keys(keys)
    group = key_group("hot", 128)
    for load, near in ((by_column, 0.02), (by_key, 0.05)):
        report = load.report()
        assert report["width"] == 1
        assert report["total"] == pytest.approx(60 * 4096)
        assert sum(report["loads"]) == pytest.approx(60 * 4096, rel=0.01)
        assert report["loads"][group] / report["total"] == pytest.approx(1 / 3 + 1 / 128, abs=near)
        (_, text, count) = report["hot"][0]
        assert text == "'hot'"
        assert count / report["total"] <= 1 / 3 + near
        assert (count + report["error"]) / report["total"] >= 1 / 3 - near
        assert len(report["hot"]) == 1


def test_a_key_that_cannot_be_written_is_named_by_its_class() -> None:
    class Mute(int):
        def __repr__(self) -> str:
            raise ValueError("no")

    load = KeyLoad(128, 8, 0)
    load.saw_keys([Mute(5)] * 64)
    load.saw_keys(["long" * 100] * 64)
    assert {text for _, text, _ in load.report()["hot"]} == {"<Mute>", f"'{'long' * 19}..."}


def test_few_batches_are_looked_at_and_what_is_old_counts_for_less() -> None:
    load = KeyLoad(32_768, 0, 0)
    assert [load.is_due() for _ in range(1000)].count(True) == PER_REPORT
    assert load.report()["hot"] == []
    due = [load.is_due() or load.is_due() for _ in range(2 * EVERY * PER_REPORT)]
    assert due.count(True) == PER_REPORT
    old, new = columns(["a"] * ROWS), columns(["b"] * ROWS)
    for batch in (old, new, new):
        for _ in range(HALF_LIFE // ROWS):
            load.saw_columns(batch)
    report = load.report()
    assert (report["width"], len(report["loads"])) == (32, 1024)
    runs = [key_group(key, 32_768) // 32 for key in "ab"]
    old_load, new_load = (report["loads"][run] for run in runs)
    assert 2 * old_load < new_load
    assert load.report()["total"] == 0  # no key is looked at


def test_a_job_says_what_all_senders_saw() -> None:
    source, target = VertexId("s"), VertexId("t")
    vertices = tuple(
        JobVertex(id, id, (ChainedOperator(OperatorId(id), id, None),), parallelism, 128)
        for id, parallelism in ((source, 2), (target, 4))
    )
    edge = JobEdge(3, source, target, KeyGroups(ColumnKey(("k",))))
    job = JobGraph("job", vertices, (edge,), JobConfig())
    reports = {}
    for subtask in (0, 1):
        load = KeyLoad(128, 8, subtask)
        for _ in range(20):
            load.saw_columns(columns(batch_of(1024)))
        reports[TaskId(source, subtask)] = {"keys": {3: load.report()}}
    (figures,) = key_figures(reports, job)
    owner = int(subtask_table(4, 128)[key_group("hot", 128)])
    assert figures["vertex"] == "t"
    assert sum(figures["loads"]) == pytest.approx(1)
    assert sum(figures["subtasks"]) == pytest.approx(1)
    assert figures["skew"] == pytest.approx(4 * max(figures["subtasks"]))
    assert figures["subtasks"].index(max(figures["subtasks"])) == owner
    (hot,) = figures["hot"]
    assert (hot["key"], hot["subtask"]) == ("'hot'", owner)
    assert hot["share"] <= 0.36
    assert hot["most"] >= 0.31
    assert key_figures({}, job) == []
