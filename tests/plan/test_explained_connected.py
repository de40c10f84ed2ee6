"""What `explain()` says of functions of two inputs and of broadcast streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from explained_kit import below, by_k, records, said
from strom import (
    BroadcastProcessFunction,
    CoProcessFunction,
    DiscardSink,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    StreamExecutionEnvironment,
)


class PassesBoth(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    process_element2 = process_element1


class PassesBatches:
    def map_batches1(self, batch: Any) -> Any:
        return batch

    map_batches2 = map_batches1


class PassesWithRules(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    process_broadcast_element = process_element


class PassesByKeyWithRules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    process_broadcast_element = process_element


def rules(env: Any) -> Any:
    return records(env).broadcast(MapStateDescriptor("rules"))


TABLE: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "co-process": (
        lambda env: records(env).connect(records(env)).process(PassesBoth()),
        [
            "rows: a Python function of each record of two inputs",
            "not faster: the function is Python: connect(...).map_batches() runs on columns",
        ],
    ),
    "keyed co-process": (
        lambda env: by_k(env).connect(records(env).key_by(lambda r: r.k)).process(PassesBoth()),
        [
            "rows: a Python function of each record of two inputs, with the state of its key",
            "not faster: the function is Python: connect(...).map_batches() runs on columns, and "
            "joins have kernels",
        ],
    ),
    "batches of two inputs": (
        lambda env: records(env).connect(records(env)).map_batches(PassesBatches, "polars"),
        ["batches: a Python function of each batch of two inputs, as polars"],
    ),
    "broadcast state": (
        lambda env: records(env).connect(rules(env)).process(PassesWithRules()),
        [
            "rows: a Python function of each record, with broadcast state",
            "not faster: the function is Python: broadcast_join() and lookup_join() have kernels",
        ],
    ),
    "broadcast state with keys": (
        lambda env: by_k(env).connect(rules(env)).process(PassesByKeyWithRules()),
        [
            "rows: a Python function of each record, with broadcast state and the state of its key",
            "not faster: the function is Python: broadcast_join() and lookup_join() have kernels",
        ],
    ),
}


@pytest.mark.parametrize("program", TABLE)
def test_each_operator(program: str) -> None:
    build, expected = TABLE[program]
    assert said(build) == expected


def test_where_elements_get_their_order() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    records(env).connect(rules(env)).process(PassesWithRules()).sink_to(DiscardSink())
    assert below(env, "Broadcast") == ["batches: one order for all"]
