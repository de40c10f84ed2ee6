"""Graphs as text, Mermaid and JSON: golden outputs."""

from __future__ import annotations

import json

from strom.core.config import JobConfig
from strom.core.keys import ColumnKey, FunctionKey
from strom.engine.graph.chaining import build_job_graph
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.explain import describe, ship_name, to_mermaid, to_text
from strom.engine.graph.model import Custom, KeyGroups, Rebalance, StreamGraph
from strom.engine.graph.stream_graph import build_stream_graph
from strom.engine.graph.transformation import Input, Transformation


def program() -> StreamGraph:
    """flights(2) -> valid(2) ==origin==> hourly(2) -> table(2); hourly 'late' -> files(1)"""
    flights = Transformation(0, None, "flights", (), 2, is_source=True)
    valid = Transformation(1, None, "valid", (Input(flights),), 2, description="has a delay")
    by_origin = KeyGroups(ColumnKey(("origin",)))
    hourly = Transformation(2, None, "hourly", (Input(valid, None, by_origin),), 2, uid="hourly")
    table = Transformation(3, None, "table", (Input(hourly),), 2, is_sink=True)
    files = Transformation(4, None, "files", (Input(hourly, "late"),), 1, is_sink=True)
    return build_stream_graph([table, files], "delays", JobConfig(parallelism=2))


STREAM_TEXT = """\
stream graph 'delays': 5 nodes
1  flights  [source, parallelism 2]
2  valid  [parallelism 2]
   ├─ from 1 by FORWARD
   └─ has a delay
3  hourly  [parallelism 2]
   └─ from 2 by HASH(origin)
4  table  [sink, parallelism 2]
   └─ from 3 by FORWARD
5  files  [sink, parallelism 1]
   └─ from 3 by REBALANCE, side output 'late'"""

JOB_TEXT = """\
job graph 'delays': 3 nodes
1  flights -> valid  [source, parallelism 2]
   ├─ runs flights
   └─ runs valid: has a delay
2  hourly -> table  [sink, parallelism 2]
   ├─ from 1 by HASH(origin)
   ├─ runs hourly
   └─ runs table
3  files  [sink, parallelism 1]
   └─ from 2 by REBALANCE, side output 'late'"""

EXECUTION_TEXT = """\
execution graph 'delays': 5 nodes
1.0  flights -> valid (1/2)  [source, parallelism 1]
1.1  flights -> valid (2/2)  [source, parallelism 1]
2.0  hourly -> table (1/2)  [sink, parallelism 1]
   ├─ from 1.0 by HASH(origin)
   └─ from 1.1 by HASH(origin)
2.1  hourly -> table (2/2)  [sink, parallelism 1]
   ├─ from 1.0 by HASH(origin)
   └─ from 1.1 by HASH(origin)
3.0  files (1/1)  [sink, parallelism 1]
   ├─ from 2.0 by REBALANCE, side output 'late'
   └─ from 2.1 by REBALANCE, side output 'late'"""

JOB_MERMAID = """\
flowchart LR
    n1(["flights -> valid x2"])
    n2[("hourly -> table x2")]
    n3[("files x1")]
    n1 -->|"HASH(origin)"| n2
    n2 -->|"REBALANCE 'late'"| n3"""


def test_text_of_all_levels() -> None:
    stream = program()
    job = build_job_graph(stream)
    assert to_text(describe(stream)) == STREAM_TEXT
    assert to_text(describe(job)) == JOB_TEXT
    assert to_text(describe(build_execution_graph(job))) == EXECUTION_TEXT


def test_mermaid() -> None:
    assert to_mermaid(describe(build_job_graph(program()))) == JOB_MERMAID


def test_mermaid_escapes_quotes_and_numbers_subtasks() -> None:
    source = Transformation(0, None, 'say "<hi>"', (), 1, is_source=True, is_sink=True)
    graph = build_stream_graph([source], "test", JobConfig())
    execution = build_execution_graph(build_job_graph(graph))
    text = to_mermaid(describe(execution))
    assert 'n1_0["say &quot;&lt;hi>&quot; (1/1) x1"]' in text


def test_descriptions_are_json() -> None:
    stream = program()
    job = build_job_graph(stream)
    for graph in (stream, job, build_execution_graph(job)):
        description = describe(graph)
        assert json.loads(json.dumps(description)) == description
    described = describe(stream)["nodes"][2]
    assert described["uid"] == "hourly"
    assert described["inputs"] == [{"from": "2", "ship": "HASH(origin)", "tag": None, "port": 0}]
    assert describe(job)["nodes"][1]["operators"][0]["feeds"] == [1]


def parity(key: int, n: int) -> int:
    return key % n


def test_ship_names() -> None:
    assert ship_name(Rebalance()) == "REBALANCE"
    assert ship_name(Custom(parity, FunctionKey(len))) == "CUSTOM(len)"
