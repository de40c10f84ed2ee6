"""execute_and_collect against a host that plays back published values."""

from __future__ import annotations

from typing import Any

import pytest
from strom.api.connectors.builtin_sinks import CollectSink
from strom.api.streams.data_stream import StreamExecutionEnvironment as Env
from strom.core.errors import GraphError, JobFailedError
from strom.core.job_status import JobStatus


def test_all_records_in_order_of_publishing(env: Env, host: Any) -> None:
    host.values = [[1, 2], [], [3]]
    results = env.from_collection([1]).execute_and_collect("numbers")
    assert list(results) == [1, 2, 3]
    (client,) = host.submitted
    sink = client.graph.vertices[0].operators[-1]
    assert isinstance(sink.spec.sink, CollectSink)
    assert client.asked == [sink.operator_id]
    assert client.graph.name == "numbers"
    results.close()
    assert not client.cancelled, "the job had ended by itself"


def test_leaving_early_cancels_the_job(env: Env, host: Any) -> None:
    host.values = [[1, 2, 3]]
    with env.from_collection([1]).execute_and_collect() as results:
        assert next(results) == 1
        assert results.next() == 2
    assert host.submitted[0].cancelled
    with pytest.raises(StopIteration):
        next(results)


def test_limit_gives_a_list_and_cancels(env: Env, host: Any) -> None:
    host.values = [[1, 2], [3, 4]]
    assert env.from_collection([1]).execute_and_collect(limit=3) == [1, 2, 3]
    assert host.submitted[0].cancelled


def test_limit_beyond_the_end(env: Env, host: Any) -> None:
    host.values = [[1, 2]]
    assert env.from_collection([1]).execute_and_collect("job", 10) == [1, 2]
    assert not host.submitted[0].cancelled


def test_a_failed_job_raises_after_its_records(env: Env, host: Any) -> None:
    host.values, host.outcome = [[1]], JobStatus.FAILED
    results = env.from_collection([1]).execute_and_collect()
    assert next(results) == 1
    with pytest.raises(JobFailedError, match="boom"):
        next(results)


def test_a_refused_job_leaves_no_sink_behind(env: Env, host: Any) -> None:
    stream = env.from_collection([1]).uid("same")
    stream.map(abs).uid("same")
    with pytest.raises(GraphError, match="uid"):
        stream.execute_and_collect()
    with pytest.raises(GraphError, match="uid"):
        stream.execute_and_collect()
    assert [t.name for t in env._transformations] == ["Source: Collection", "Map"]


def test_collecting_twice_runs_two_jobs(env: Env, host: Any) -> None:
    host.values = [[1]]
    stream = env.from_collection([1])
    assert list(stream.execute_and_collect()) == [1]
    assert list(stream.execute_and_collect()) == [1]
    assert [len(c.graph.vertices[0].operators) for c in host.submitted] == [2, 2]
