"""Where local combining puts its operators, and that nobody else notices."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom import (
    DiscardSink,
    OutputTag,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    count,
    count_distinct,
    first,
    stddev,
)
from strom.core.config import JobConfig
from strom.core.keys import ColumnKey, ExpressionKey
from strom.core.partials import PartialKey
from strom.engine.graph.chaining import build_job_graph
from strom.engine.graph.model import Forward, KeyGroups, StreamGraph
from strom.plan.combining_groups import CombineGroupsSpec

WINDOW = TumblingEventTimeWindows.of(timedelta(seconds=1))
ROWS = pa.table({"k": ["a"], "v": [1]})
NAME = "LocalCombine(TumblingEventTimeWindows(n))"


def environment(**settings: Any) -> StreamExecutionEnvironment:
    config = JobConfig(parallelism=2, **settings)
    return StreamExecutionEnvironment.get_execution_environment(config)


def counted(env: StreamExecutionEnvironment, key: Any = "k") -> Any:
    windows = env.from_collection(ROWS).select("k", "v").key_by(key).window(WINDOW)
    return windows.aggregate(n=count())


def graph(env: StreamExecutionEnvironment, *streams: Any) -> StreamGraph:
    for stream in streams:
        stream.sink_to(DiscardSink())
    return env.get_stream_graph()


def names(stream: StreamGraph) -> list[str]:
    return [node.name for node in stream.nodes if "LocalCombine" in node.name]


def edges(stream: StreamGraph) -> list[tuple[str, str, Any]]:
    nodes = {node.id: node.name for node in stream.nodes}
    return [(nodes[e.source], nodes[e.target], e.partitioner) for e in stream.edges]


def test_it_stands_before_the_exchange_in_the_chain_of_the_operator_before() -> None:
    env = environment()
    stream = graph(env, counted(env))
    assert ("Select", NAME, Forward()) in edges(stream)
    window = "TumblingEventTimeWindows(n)"
    assert (NAME, window, KeyGroups(ColumnKey(("k",)))) in edges(stream)
    assert [node.id for node in stream.nodes] == list(range(len(stream.nodes)))
    assert all(edge.source < edge.target for edge in stream.edges)
    before = build_job_graph(stream).vertices[1]
    assert [op.name for op in before.operators][-1] == NAME


def test_ids_of_other_operators_are_the_same_with_and_without() -> None:
    def ids(on: bool) -> dict[str, str]:
        env = environment(local_combining=on)
        stream = graph(env, counted(env), counted(env, pl.col("v") % 2))
        return {f"{n.operator_id}": n.name for n in stream.nodes}

    plain, combined = ids(False), ids(True)
    added = [name for operator, name in combined.items() if operator not in plain]
    assert plain.items() <= combined.items()
    assert added == [NAME, NAME]


def test_expression_keys_are_found_in_partials_too() -> None:
    env = environment()
    keys = [p.key for s, _, p in edges(graph(env, counted(env, pl.col("v") % 2))) if s == NAME]
    assert isinstance(keys[0], PartialKey)
    assert isinstance(keys[0].key, ExpressionKey)


def test_each_input_of_a_union_gets_its_own() -> None:
    env = environment()
    both = env.from_collection(ROWS).union(env.from_collection(ROWS).select("k", "v"))
    assert names(graph(env, both.key_by("k").window(WINDOW).aggregate(n=count()))) == [NAME] * 2


def test_whole_stream_windows_are_aggregated_in_parallel_first() -> None:
    env = environment()
    whole = env.from_collection(ROWS).select("v").rebalance().select("v").window_all(WINDOW)
    stream = graph(env, whole.max_by("v"))
    (local,) = [node for node in stream.nodes if "LocalCombine" in node.name]
    assert local.parallelism == 2
    env = environment().set_parallelism(1)
    whole = env.from_collection(ROWS).window_all(WINDOW).max_by("v")
    assert names(graph(env, whole)) == [], "there is no exchange to save"


def test_settings_of_the_operator_before_are_taken_over() -> None:
    env = environment()
    before = env.from_collection(ROWS).select("k", "v").set_parallelism(3)
    before = before.slot_sharing_group("one")
    windows = before.key_by("k").window(WINDOW).aggregate(n=count())
    stream = graph(env, windows.slot_sharing_group("two"))
    (local,) = [node for node in stream.nodes if node.name == NAME]
    assert (local.parallelism, local.slot_sharing_group) == (3, "one")


@pytest.mark.parametrize("senders", [1, 2])
def test_it_is_there_whatever_the_number_of_senders(senders: int) -> None:
    """Or what is in flight behind it could not be restored at another parallelism."""
    env = environment()
    before = env.from_collection(ROWS).select("k", "v").set_parallelism(senders).key_by("k")
    windows = before.window(WINDOW).aggregate(n=stddev("v"))
    running = before.aggregate(n=count_distinct("v"), s=stddev("v"))
    assert len(names(graph(env, windows, running))) == 2


def test_running_aggregates_are_combined_by_batch() -> None:
    env = environment()
    running = env.from_collection(ROWS).select("k", "v").key_by("k").aggregate(n=count())
    stream = graph(env, running)
    (local,) = [node for node in stream.nodes if "LocalCombine" in node.name]
    assert isinstance(local.spec, CombineGroupsSpec)
    assert ("Select", local.name, Forward()) in edges(stream)
    env = environment(local_combining=False)
    running = env.from_collection(ROWS).select("k", "v").key_by("k").aggregate(n=count())
    assert names(graph(env, running)) == []


@pytest.mark.parametrize("why", ["config", "chaining", "chain", "lateness", "late", "order", "key"])
def test_where_it_would_change_something_there_is_none(why: str) -> None:
    env = environment(local_combining=why != "config", chaining=why != "chaining")
    before = env.from_collection(ROWS).select("k", "v")
    if why == "chain":
        before = before.disable_chaining()
    windows = before.key_by((lambda r: r.k) if why == "key" else "k").window(WINDOW)
    if why == "lateness":
        windows = windows.allowed_lateness(5)
    if why == "late":
        windows = windows.side_output_late_data(OutputTag("late"))
    aggregate = first("v") if why == "order" else count()
    assert names(graph(env, windows.aggregate(n=aggregate))) == []


def test_the_program_itself_is_not_changed() -> None:
    env = environment()
    stream = counted(env)
    stream.sink_to(DiscardSink())
    once, twice = env.get_stream_graph(), env.get_stream_graph()
    assert replace(once, nodes=(), edges=()) == replace(twice, nodes=(), edges=())
    assert names(once) == names(twice) == [NAME]
