"""StopIteration out of functions of two inputs, with broadcast state and with state of subtasks: it
fails the job and names the operator, as in `test_stop_iteration`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
import strom
from chaos_kit import config, environment, failure
from strom.connectors.datagen import DataGenSource

FORBIDDEN = "STROM_TEST_FORBIDDEN"
"""In the environment: functions are shipped by value, whatever the module holds by then."""

HERE = re.escape(__file__)
RECORDS = 40
FIRST = (0, 1, 2, 4, 5)
"""The numbers that `pick` finds."""

ROW = pa.schema([("n", pa.int64())])
TIMES = strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)


def pick(n: Any) -> Any:
    """As users write it: raises StopIteration for what is not there, or an error of strom."""
    if FORBIDDEN in os.environ and n not in FIRST:
        raise strom.ConfigurationError("forbidden")
    return next(v for v in FIRST if v == n)


def numbers(env: Any) -> Any:
    return env.from_collection(list(range(RECORDS))).name("numbers")


def rows(env: Any) -> Any:
    return numbers(env).map(lambda n: (n,), output_type=ROW)


def keyed(env: Any) -> Any:
    return numbers(env).assign_timestamps_and_watermarks(TIMES).key_by(lambda n: n % 2)


class PickCoMap(strom.CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return pick(value)


class PickCoFlatMap(strom.CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return [pick(value)]

    def flat_map2(self, value: Any) -> Any:
        return None


class PickCoProcess(strom.KeyedCoProcessFunction):
    def __init__(self, where: str) -> None:
        self.where = where

    def process_element1(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value + 10)
        return [pick(value)] if self.where == "element" else None

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield pick(value) if self.where == "generator" else value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return [pick(-1)]


RULES = strom.MapStateDescriptor("rules")
SEEN = strom.ValueStateDescriptor("seen")


class PickBroadcast(strom.BroadcastProcessFunction):
    def __init__(self, where: str) -> None:
        self.where = where

    def process_element(self, value: Any, ctx: Any) -> Any:
        return [pick(value)] if self.where == "record" else None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return [pick(value)] if self.where == "element" else None


class PickKeyedBroadcast(strom.KeyedBroadcastProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        ctx.timer_service().register_event_time_timer(value + 10)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.apply_to_keyed_state(SEEN, lambda key, state: pick(-1))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return [pick(-1)]


class PickState(strom.MapFunction, strom.CheckpointedFunction):
    def __init__(self, where: str) -> None:
        self.where = where

    def map(self, value: Any) -> Any:
        return value

    def initialize_state(self, context: Any) -> None:
        if self.where == "initialize_state":
            pick(-1)

    def snapshot_state(self, context: Any) -> None:
        pick(-1)


class PickBatches:
    def map_batches1(self, batch: Any) -> Any:
        return None

    def map_batches2(self, batch: Any) -> Any:
        return pick(-1)


def connected(env: Any) -> Any:
    return numbers(env).connect(env.from_collection(list(range(RECORDS))))


def keyed_connected(env: Any) -> Any:
    return keyed(env).connect(keyed(env))


def with_rules(stream: Any) -> Any:
    other = stream.get_execution_environment().from_collection(list(range(RECORDS)))
    return stream.connect(other.broadcast(RULES))


PLACES: dict[str, Callable[[Any], Any]] = {
    "co-map": (lambda env: connected(env).map(PickCoMap())),
    "keyed co-map": (lambda env: keyed_connected(env).map(PickCoMap())),
    "co-flat-map": (lambda env: connected(env).flat_map(PickCoFlatMap())),
    "co-process": (lambda env: keyed_connected(env).process(PickCoProcess("element"))),
    "a co-process generator": (
        lambda env: keyed_connected(env).process(PickCoProcess("generator"))
    ),
    "a co-process timer": (lambda env: keyed_connected(env).process(PickCoProcess("timer"))),
    "batches of two inputs": (lambda env: rows(env).connect(rows(env)).map_batches(PickBatches)),
    "a record with broadcast state": (
        lambda env: with_rules(numbers(env)).process(PickBroadcast("record"))
    ),
    "a broadcast element": (lambda env: with_rules(numbers(env)).process(PickBroadcast("element"))),
    "a timer or all keys, with broadcast state": (
        lambda env: with_rules(keyed(env)).process(PickKeyedBroadcast())
    ),
    "initialize_state": (lambda env: numbers(env).map(PickState("initialize_state"))),
}
"""A program in which user code raises there."""


@pytest.mark.parametrize("place", PLACES)
def test_it_fails_the_job_and_names_the_operator(place: str) -> None:
    text = failure(PLACES[place](environment(config(auto_watermark_interval=TICK))).name("it"))
    assert "operator 'it', subtask" in text
    first, _, trace = text.partition("\n")
    assert re.search(rf"StopIteration: next\(\) found.* \(at {HERE}:\d+ in pick\)$", first)
    frames = re.findall(r'File "(.*)", line', trace)
    assert {*frames[:1], *frames[-1:]} <= {__file__}


TICK = timedelta(milliseconds=20)


@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_our_own_that_a_function_raises_has_its_line(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORBIDDEN, "yes")
    text = failure(PLACES[place](environment(config(auto_watermark_interval=TICK))).name("it"))
    assert re.search(rf"operator 'it', subtask.*: forbidden.* \(at {HERE}:\d+ in pick\)", text)


def test_of_a_snapshot_of_functions() -> None:
    source = DataGenSource(lambda start, n: list(range(start, start + n)), rate=1000)
    env = environment(config(interval_ms=20, restart=strom.NoRestart()))
    stream = env.from_source(source, source_name="numbers").map(PickState("snapshot_state"))
    text = failure(stream.name("it"))
    assert re.search(rf"operator 'it', subtask .*StopIteration.*\(at {HERE}:\d+ in pick\)", text)
