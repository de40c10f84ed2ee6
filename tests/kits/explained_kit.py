"""Streams of one row, and what `explain()` says of an operator behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from strom import DiscardSink, JobConfig, StreamExecutionEnvironment

ROWS = pa.table({"k": ["a"], "n": [1], "x": [1.5], "ts": [10]})


def records(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection(ROWS).with_event_time("ts")


def objects(env: StreamExecutionEnvironment) -> Any:
    return records(env).map(lambda row: row)


def by_k(env: StreamExecutionEnvironment) -> Any:
    return records(env).key_by("k")


def by_function(env: StreamExecutionEnvironment) -> Any:
    return records(env).key_by(lambda row: row.k)


def said(build: Callable[[Any], Any], **settings: Any) -> list[str]:
    """What stands below the operator that `build` returns the stream of, its inputs left out."""
    config = JobConfig(**{"parallelism": 2, "local_combining": True, **settings})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    build(env).name("asked").sink_to(DiscardSink())
    return below(env, "asked")


def below(env: StreamExecutionEnvironment, name: str) -> list[str]:
    """What stands below the operator of this name, its inputs left out."""
    text = env.explain(level="stream").split("\n")
    start = next(i for i, line in enumerate(text) if line.split("  ")[1:2] == [name])
    found = []
    for line in text[start + 1 :]:
        if not line.startswith("   "):
            break
        found.append(line.strip("├└─│ "))
    return [line for line in found if not line.startswith("from ")]
