"""State of a subtask, of every kind of function that has a lifecycle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import strom
from strom import CheckpointedFunction, ListStateDescriptor, MapStateDescriptor, Types
from strom.testing.operator_harness import OperatorHarness

SEEN = MapStateDescriptor("seen")
ROW = Types.ROW_NAMED(["k", "n"], [Types.LONG(), Types.LONG()])


class Remembers(CheckpointedFunction):
    """How many snapshots it has lived through, in state; `seen` shows it."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n"))
        self.snapshots = sum(self.state.get())
        self.restored = context.is_restored()

    def snapshot_state(self, context: Any) -> None:
        self.snapshots += 1
        self.state.update([self.snapshots])

    def seen(self) -> tuple[bool, int]:
        return self.restored, self.snapshots


class Map(strom.MapFunction, Remembers):
    def map(self, value: Any) -> Any:
        return self.seen()


class FlatMap(strom.FlatMapFunction, Remembers):
    def flat_map(self, value: Any) -> Any:
        yield self.seen()


class Filter(strom.FilterFunction, Remembers):
    def filter(self, value: Any) -> bool:
        shown.append(self.seen())
        return False


class Process(strom.ProcessFunction, Remembers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.seen()


class KeyedProcess(strom.KeyedProcessFunction, Remembers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.seen()


class Reduce(strom.ReduceFunction, Remembers):
    def reduce(self, value1: Any, value2: Any) -> Any:
        shown.append(self.seen())
        return value2


class Aggregate(strom.AggregateFunction, Remembers):
    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        shown.append(self.seen())
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_b


class Window(strom.ProcessWindowFunction, Remembers):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield self.seen()


class AllWindow(strom.AllWindowFunction, Remembers):
    def apply(self, window: Any, inputs: Any) -> Any:
        yield self.seen()


class CoMap(strom.CoMapFunction, Remembers):
    def map1(self, value: Any) -> Any:
        return self.seen()

    map2 = map1


class CoFlatMap(strom.CoFlatMapFunction, Remembers):
    def flat_map1(self, value: Any) -> Any:
        return [self.seen()]

    flat_map2 = flat_map1


class CoProcess(strom.CoProcessFunction, Remembers):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield self.seen()

    process_element2 = process_element1


class Broadcast(strom.BroadcastProcessFunction, Remembers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.seen()

    process_broadcast_element = process_element


class KeyedBroadcast(strom.KeyedBroadcastProcessFunction, Remembers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.seen()

    process_broadcast_element = process_element


class Batches(Remembers):
    def __call__(self, batch: Any) -> Any:
        return [self.seen()]


class CoBatches(Remembers):
    def map_batches1(self, batch: Any) -> Any:
        return [self.seen()]

    map_batches2 = map_batches1


shown: list[Any] = []
"""Of functions whose results do not show it."""


def windows(stream: Any) -> Any:
    return stream.window(strom.TumblingEventTimeWindows.of(10))


KINDS: dict[str, Callable[[Any], Any]] = {
    "map": lambda a: a.map(Map()),
    "keyed map": lambda a: a.key_by("k").map(Map()),
    "flat_map": lambda a: a.flat_map(FlatMap()),
    "keyed flat_map": lambda a: a.key_by("k").flat_map(FlatMap()),
    "filter": lambda a: a.filter(Filter()),
    "keyed filter": lambda a: a.key_by("k").filter(Filter()),
    "process": lambda a: a.process(Process()),
    "keyed process": lambda a: a.key_by("k").process(KeyedProcess()),
    "reduce": lambda a: a.key_by("k").reduce(Reduce()),
    "window process": lambda a: windows(a.key_by("k")).process(Window()),
    "window reduce": lambda a: windows(a.key_by("k")).reduce(Reduce()),
    "window aggregate": lambda a: windows(a.key_by("k")).aggregate(Aggregate()),
    "window reduce and process": lambda a: windows(a.key_by("k")).reduce(Reduce(), Window()),
    "all windows": lambda a: a.window_all(strom.TumblingEventTimeWindows.of(10)).apply(AllWindow()),
    "map_batches": lambda a: a.map_batches(Batches),
    "map_batches of an object": lambda a: a.map_batches(Batches()),
    "co-map": lambda a: a.connect(a).map(CoMap()),
    "keyed co-map": lambda a: a.key_by("k").connect(a.key_by("k")).map(CoMap()),
    "co-flat-map": lambda a: a.connect(a).flat_map(CoFlatMap()),
    "co-process": lambda a: a.connect(a).process(CoProcess()),
    "keyed co-process": lambda a: a.key_by("k").connect(a.key_by("k")).process(CoProcess()),
    "batches of two inputs": lambda a: a.connect(a).map_batches(CoBatches),
    "broadcast": lambda a: a.connect(a.broadcast(SEEN)).process(Broadcast()),
    "keyed broadcast": lambda a: a.key_by("k").connect(a.broadcast(SEEN)).process(KeyedBroadcast()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_there_again_after_a_restore(kind: str) -> None:
    env = strom.StreamExecutionEnvironment.get_execution_environment()
    stream = KINDS[kind](env.from_collection([(1, 1)], ROW))
    row = strom.Row(k=1, n=1)
    first = OperatorHarness.of(stream)
    first.push([row], [1])
    first.snapshot()
    again = OperatorHarness.of(stream, restored=first.snapshot())
    shown.clear()
    again.push([row, row], [2, 3])
    again.watermark(20)
    assert {(True, 2)} <= {*shown, *[tuple(one) for one in again.outputs()]}


def test_no_operator_forgets_it() -> None:
    """Whoever makes a `UserFunction` has it take part in snapshots, here or where it is kept."""
    folder = Path(strom.__file__).parent / "operators"
    makes = [p for p in folder.rglob("*.py") if re.search(r"= UserFunction\(", p.read_text())]
    elsewhere = {"window_logic.py", "window_emit.py"}  # `RowWindowOperator` keeps these
    calls = [p for p in makes if ".snapshot(checkpoint_id)" in p.read_text()]
    assert {p.name for p in makes} - {p.name for p in calls} <= elsewhere
    assert len(calls) >= 5
