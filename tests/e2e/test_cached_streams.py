"""Cached streams on the local host, and through the ways of the equivalence harness."""

from __future__ import annotations

import gc
import logging
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import strom
from cached_kit import Calls, collected, doubled, environment, kept_bytes
from drawn_ways import assert_equivalent
from strom import (
    ConfigurationError,
    DiscardSink,
    GraphError,
    JobFailedError,
    JobStatus,
    StreamExecutionEnvironment,
    Types,
    count,
)
from strom.api.connectors.cached_parts import opened_batch, sealed_batch
from strom.connectors.datagen import DataGenSource
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.engine.hosts.memory_parts import MemoryParts
from strom.testing.equivalence import Ways


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path)


def test_the_first_job_makes_it_and_later_ones_read_it(calls: Calls) -> None:
    env = environment()
    cached = env.from_collection(list(range(100))).map(calls.counting(doubled)).cache()
    expected = list(range(0, 200, 2))
    assert collected(cached) == expected
    assert calls.number == 100
    for _ in range(2):
        assert collected(cached) == expected
        assert collected(cached.map(lambda v: v + 1)) == [v + 1 for v in expected]
    assert calls.number == 100


def test_it_is_a_side_product_of_a_job_that_does_something_else(calls: Calls) -> None:
    env = environment()
    cached = env.from_collection(list(range(50))).map(calls.counting(doubled)).cache()
    cached.filter(lambda v: False).sink_to(DiscardSink())
    env.execute()
    assert collected(cached) == list(range(0, 100, 2))
    assert calls.number == 50


def test_columns_types_and_event_times_are_kept(calls: Calls) -> None:
    env = environment()
    kind = Types.ROW_NAMED(["k", "t"], [Types.STRING(), Types.LONG()])
    rows = [("ab"[n % 2], n) for n in range(60)]
    cached = env.from_collection(rows, kind).with_event_time("t").cache()
    totals = [
        cached.key_by("k").window(strom.TumblingEventTimeWindows.of(20)).aggregate(n=count())
        for _ in range(2)
    ]
    expected = [(k, at, at + 20, 10) for k in "ab" for at in (0, 20, 40)]
    assert collected(totals[0]) == expected
    assert collected(totals[1]) == expected
    assert "kernel" in env_explained(env, cached)
    assert [row.k for row in cached.execute_and_collect()].count("a") == 30


def env_explained(env: Any, cached: Any) -> str:
    cached.key_by("k").window(strom.TumblingEventTimeWindows.of(20)).aggregate(n=count()).sink_to(
        DiscardSink()
    )
    text = env.explain()
    env.execute()
    return text


def test_records_that_a_job_changes_are_kept_unchanged() -> None:
    def spoil(record: dict[str, int]) -> dict[str, int]:
        record["n"] = -1
        return record

    env = environment()
    cached = env.from_collection([{"n": n} for n in range(10)]).cache()
    for _ in range(2):
        assert [r["n"] for r in cached.map(spoil).execute_and_collect()] == [-1] * 10
    assert sorted(r["n"] for r in cached.execute_and_collect()) == list(range(10))


def test_an_empty_stream_is_kept_too(calls: Calls) -> None:
    env = environment()
    source = env.from_collection(list(range(10))).map(calls.counting(doubled))
    cached = source.filter(lambda v: False).cache()
    assert collected(cached) == collected(cached) == []
    assert calls.number == 10


def test_order_within_a_subtask_is_kept() -> None:
    env = environment(1)
    cached = env.from_collection(list(range(1000))).cache()
    for _ in range(3):
        assert list(cached.execute_and_collect()) == list(range(1000))


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_another_parallelism_reads_all_of_it(parallelism: int, calls: Calls) -> None:
    env = environment(3)
    cached = env.from_collection(list(range(100))).map(calls.counting(doubled)).cache()
    assert collected(cached) == list(range(0, 200, 2))
    cached.set_parallelism(parallelism)
    assert collected(cached) == list(range(0, 200, 2))
    assert calls.number == 100


def test_one_cached_stream_made_of_another(calls: Calls) -> None:
    env = environment()
    first = env.from_collection(list(range(20))).map(calls.counting(doubled)).cache()
    second = first.map(calls.counting(doubled)).cache()
    assert collected(second) == list(range(0, 80, 4))
    assert calls.number == 40
    first.invalidate()
    assert collected(second) == list(range(0, 80, 4))
    assert calls.number == 40
    second.invalidate()
    assert collected(second) == list(range(0, 80, 4))
    assert calls.number == 80


def test_invalidate_frees_it_and_the_next_job_makes_it_anew(calls: Calls) -> None:
    env = environment()
    cached = env.from_collection(list(range(100))).map(calls.counting(doubled)).cache()
    collected(cached)
    assert kept_bytes(env) > 0
    cached.invalidate()
    assert kept_bytes(env) == 0
    cached.invalidate()
    assert collected(cached) == list(range(0, 200, 2))
    assert calls.number == 200
    assert kept_bytes(env) > 0


def test_closing_the_environment_frees_it(calls: Calls) -> None:
    env = environment()
    cached = env.from_collection(list(range(10))).map(calls.counting(doubled)).cache()
    collected(cached)
    parts = weakref.ref(env._caches._store.parts)
    env.close()
    assert gc.collect() >= 0
    assert parts() is None
    assert collected(cached) == list(range(0, 20, 2))
    assert calls.number == 20


def test_a_job_that_fails_leaves_nothing(calls: Calls) -> None:
    def fail(value: Any) -> Any:
        if value == 198:
            raise ValueError("no")
        return value

    env = environment(restart=strom.NoRestart())
    cached = env.from_collection(list(range(100))).map(calls.counting(doubled)).cache()
    cached.map(fail).sink_to(DiscardSink())
    with pytest.raises(JobFailedError):
        env.execute()
    failed = calls.number
    assert collected(cached) == list(range(0, 200, 2))
    assert collected(cached) == list(range(0, 200, 2))
    assert calls.number == failed + 100


def test_a_job_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("")

    def slowly(value: int) -> int:
        if value > 50 and slow.exists():
            time.sleep(0.02)
        return value

    env = environment()
    cached = env.from_collection(list(range(300))).map(slowly).cache()
    with cached.execute_and_collect() as results:
        next(results)
    assert results.client.get_job_status() is JobStatus.CANCELED
    slow.unlink()
    assert collected(cached) == list(range(300))


def test_a_second_job_beside_the_first_computes_it_itself(calls: Calls) -> None:
    env = environment()
    cached = env.from_collection(list(range(100))).map(calls.counting(doubled)).cache()
    cached.sink_to(DiscardSink())
    client = env.execute_async()
    assert collected(cached) == list(range(0, 200, 2))
    client.get_job_execution_result()
    before = calls.number
    assert collected(cached) == list(range(0, 200, 2))
    assert calls.number == before


def test_what_is_lost_is_made_anew_and_said(calls: Calls, caplog: Any) -> None:
    env = environment()
    cached = env.from_collection(list(range(10))).map(calls.counting(doubled)).cache()
    collected(cached)
    collected(cached)
    env._caches._store.drop(env._caches._entries[cached._operator.id].kept)
    with caplog.at_level(logging.WARNING, "strom"):
        assert collected(cached) == list(range(0, 20, 2))
    assert "'Cache(Map)' is kept no more: this job makes it anew" in caplog.text
    assert calls.number == 20


def test_what_is_lost_while_a_job_reads_it_fails_the_job() -> None:
    env = environment(1, restart=strom.NoRestart())
    cached = env.from_collection(list(range(10))).cache()
    collected(cached)
    cached.sink_to(DiscardSink())
    graph = env.get_job_graph("reads")
    cached.invalidate()
    with pytest.raises(JobFailedError, match=r"cached stream cannot be read .*makes it anew"):
        env._submit(graph).get_job_execution_result()


def test_a_store_that_refuses_makes_no_job_fail(
    calls: Calls, monkeypatch: Any, caplog: Any
) -> None:
    def full(*args: Any) -> None:
        raise MemoryError("full")

    env = environment()
    cached = env.from_collection(list(range(10))).map(calls.counting(doubled)).cache()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "strom"):
        patch.setattr(MemoryParts, "put", full)
        assert collected(cached) == list(range(0, 20, 2))
    assert "the stream is not cached, later jobs compute it again: MemoryError: full" in caplog.text
    assert collected(cached) == list(range(0, 20, 2))
    assert calls.number == 20
    collected(cached)
    assert calls.number == 20


def test_every_way(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        cached = readings.stream(env, kind).filter(lambda r: r.v % 2).cache()
        return {"kept": cached.map(lambda r: r.v), "again": cached.key_by("k").sum("v")}

    odd = [r for r in readings.all if r.v % 2]
    assert_equivalent(build, ways=Ways(seeds=range(3)))
    found = [v for name, v in assert_equivalent(build, ways=Ways(seeds=())) if name == "kept"]
    assert sorted(found) == sorted(r.v for r in odd)


def test_a_job_that_starts_from_a_checkpoint_keeps_nothing(tmp_path: Path, calls: Calls) -> None:
    def program(env: Any) -> Any:
        cached = env.from_collection(list(range(100))).map(calls.counting(doubled)).cache()
        cached.sink_to(DiscardSink())
        return cached

    env = environment()
    env.enable_checkpointing(1, storage=str(tmp_path))
    program(env)
    env.execute()
    (point,) = sorted(tmp_path.glob("*/chk-*"))[-1:]
    env = environment(restore_from=str(point))
    cached = program(env)
    env.execute()
    assert collected(cached) == list(range(0, 200, 2))


def test_what_is_refused() -> None:
    env = environment()
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    endless = env.from_source(source, source_name="Clicks").map(doubled)
    with pytest.raises(ConfigurationError, match="comes from 'Clicks', which has no end"):
        endless.union(env.from_collection([1])).cache()
    with pytest.raises(GraphError, match=r"ask the operator before cache\(\)"):
        env.from_collection([1]).cache().get_side_output(strom.OutputTag("late"))
    with pytest.raises(GraphError, match=r"use cache\(\) before key_by\(\)"):
        env.from_collection([1]).key_by(doubled).cache()
    rows = env.from_collection([{"k": 1}])
    upserts = rows.key_by("k").aggregate(n=count(), changelog="upsert")
    with pytest.raises(GraphError, match="upsert changelog"):
        upserts.cache()
    with pytest.raises(GraphError, match="upsert changelog"):
        upserts.select("k", "n").cache()


class NoCacheHost:
    def submit(self, graph: Any, job_name: str) -> Any:
        raise AssertionError("nothing is submitted")


def test_a_host_that_keeps_nothing_is_named() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(host=NoCacheHost())
    cached = env.from_collection([1]).cache()
    cached.sink_to(DiscardSink())
    with pytest.raises(ConfigurationError, match="keeps nothing"):
        env.execute()


def test_batches_come_out_as_they_went_in() -> None:
    data = pa.record_batch({"k": pa.array(["a", "b"]).dictionary_encode(), "v": [1.5, None]})
    stamps = np.array([3, 4])
    for batch in (ColumnBatch(data, stamps), ObjectBatch([{"a": 1}, (2,)], None)):
        found = opened_batch(sealed_batch(batch))
        assert type(found) is type(batch)
        if isinstance(batch, ColumnBatch):
            assert found.data.equals(batch.data)
            assert found.timestamps.tolist() == [3, 4]
        else:
            assert (found.values, found.timestamps) == (batch.values, None)
