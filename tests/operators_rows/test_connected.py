"""Functions of two inputs, one subtask at a time."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pauses_kit import GROUPS, check_pauses, run
from strom import (
    CheckpointedFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    OutputTag,
    StreamExecutionEnvironment,
    TimeDomain,
    Types,
    ValueStateDescriptor,
)
from strom.api.specs.connected import (
    CoMapBatchesSpec,
    CoProcessSpec,
    KeyedCoProcessSpec,
)
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.config import JobConfig
from strom.core.errors import StateError, TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.core.keys import FunctionKey
from strom.testing.operator_harness import OperatorHarness

SIDE = OutputTag("side")
SEEN = ValueStateDescriptor("seen")
KEY = FunctionKey(lambda n: n % 40)


class Sides(CoProcessFunction):
    """What it can ask for, and what it may not."""

    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context

    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield "first", value, ctx.timestamp(), ctx.timer_service().current_watermark()
        yield SIDE, value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        match value:
            case "timer":
                ctx.timer_service().register_event_time_timer(1)
            case "state":
                self.context.get_state(SEEN)
            case "number":
                return 7
        return None if value is None else [("second", value, ctx.timestamp())]


def test_both_methods_and_side_outputs() -> None:
    harness = OperatorHarness(CoProcessSpec(Sides()))
    harness.push(["a"], [5])
    harness.push([None, "b"], [6, 7], port=1)
    harness.watermark(3)
    harness.push(["c"], port=0)
    assert harness.stamped_outputs() == [
        (("first", "a", 5, -(2**63)), 5),
        (("second", "b", 7), 7),
        (("first", "c", None, 3), None),
    ]
    assert harness.side_outputs("side") == ["a", "c"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("timer", StateError, "'operator' sets a timer, but .* and a KeyedCoProcessFunction"),
        ("state", StateError, "'operator' asks for keyed state 'seen', but its input has no key"),
        ("number", TypeMismatchError, r"process_element2 returned 7 \(int\), which is not iter"),
    ],
)
def test_errors_without_keys(value: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        OperatorHarness(CoProcessSpec(Sides())).push([value], [1], port=1)


class Endless(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return count(value)

    process_element2 = process_element1


@pytest.mark.parametrize("port", [0, 1])
@pytest.mark.parametrize("keyed", [False, True])
def test_results_without_end_come_in_steps(port: int, keyed: bool) -> None:
    spec = KeyedCoProcessSpec(KEY, KEY, Endless()) if keyed else CoProcessSpec(Endless())
    harness = OperatorHarness(spec, config=JobConfig(batch_size=8))
    harness.pausing = True
    harness.push([3], [1], port=port)
    harness.resume(3)
    assert harness.outputs() == list(range(3, 3 + 32))
    assert harness.busy
    assert not harness.settled


class Ticking(KeyedCoProcessFunction):
    """Timers from both inputs; results tell what both have left."""

    def __init__(self, results: int) -> None:
        self.results = results

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def _see(self, value: Any, ctx: Any, side: str) -> None:
        self.seen.update([*(self.seen.value() or ()), (side, value)])
        for time in (3, 4, 5 + value % 3):
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + time)

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self._see(value, ctx, "a")

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self._see(value, ctx, "b")

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        for n in range(self.results):
            yield ctx.get_current_key(), timestamp, n, tuple(self.seen.value())


def pushes() -> tuple[list[Any], list[Any]]:
    before = [
        (port, ObjectBatch(list(range(port, 40, 2 + port)), np.zeros(20 - 7 * port, np.int64)))
        for port in (0, 1)
    ]
    after = [
        (port, ObjectBatch(list(range(40 + port, 60)), np.full(20 - port, 11))) for port in (1, 0)
    ]
    return before, [*after, 10, 30]


@pytest.mark.parametrize("results", [0, 4])
def test_checkpoints_between_timers_of_both_inputs(results: int) -> None:
    def make(**settings: Any) -> OperatorHarness:
        spec = KeyedCoProcessSpec(KEY, KEY, Ticking(results))
        config = JobConfig(batch_size=4, max_parallelism=GROUPS)
        return OperatorHarness(spec, config=config, max_parallelism=GROUPS, **settings)

    before, after = pushes()
    settled = check_pauses(make, KEY, before, 10, after, in_order_of=lambda row: row[0])
    assert settled >= 4


def test_a_watermark_that_comes_while_more_was_due_is_not_forgotten() -> None:
    """Restored in the middle of a firing, and once more before that is over, with a later watermark
    there already: its timers do not see the record that comes behind it."""

    def make(**settings: Any) -> OperatorHarness:
        config = JobConfig(batch_size=4, max_parallelism=GROUPS)
        spec = KeyedCoProcessSpec(KEY, KEY, Ticking(1))
        return OperatorHarness(spec, config=config, max_parallelism=GROUPS, **settings)

    def pause(harness: OperatorHarness, watermark: int) -> None:
        harness.pausing = True
        harness.watermark(watermark)
        while harness.busy and not harness.settled:
            harness.resume()

    before = [(0, ObjectBatch(list(range(40)), np.full(40, time))) for time in (0, 8)]
    after = [(1, ObjectBatch(list(range(40, 80)), np.full(40, 21))), 30]
    whole = make()
    run(whole, [*before, 10, 20, *after])
    first = make()
    run(first, before)
    pause(first, 10)
    assert first.busy
    second = make(restored=first.snapshot())
    pause(second, 20)
    third = make(restored=second.snapshot())
    run(third, after)
    found = sorted(row for one in (first, second, third) for row in one.outputs())
    assert found == sorted(whole.outputs())


class Joined:
    """Batches of two inputs; the second's come out with what the first left under their key."""

    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context
        self.seen = runtime_context.get_state(SEEN)

    def map_batches1(self, batch: Any) -> Any:
        for row in batch.to_pylist():
            self.context.set_current_key(row["k"])
            self.seen.update(row["v"])
        return None

    def map_batches2(self, batch: Any) -> Any:
        if batch.schema.names == ["none"]:
            return {"found": [self.seen.value()]}
        found = []
        for key in batch.column("k").to_pylist():
            self.context.set_current_key(key)
            found.append(self.seen.value())
        return {"found": found}


def rows(**columns: list[Any]) -> Any:
    return ColumnBatch(pa.RecordBatch.from_pydict(columns))


def test_batches_name_the_keys_whose_state_they_use() -> None:
    harness = OperatorHarness(CoMapBatchesSpec(Joined, keyed=True))
    harness.push(rows(k=[1, 2], v=[10, 20]))
    harness = OperatorHarness(CoMapBatchesSpec(Joined, keyed=True), restored=harness.snapshot())
    harness.push(rows(k=[2, 1, 3]), port=1)
    assert [row.found for row in harness.outputs()] == [20, 10, None]
    with pytest.raises(StateError, match="no current key"):
        harness.push(rows(none=[1]), port=1)


def test_an_object_is_opened_as_a_class_is() -> None:
    harness = OperatorHarness(CoMapBatchesSpec(Joined(), keyed=True))
    harness.push(rows(k=[1], v=[10]))
    harness.push(rows(k=[1]), port=1)
    assert [row.found for row in harness.outputs()] == [10]


def test_batches_may_not_name_the_keys_of_other_subtasks() -> None:
    groups = {"max_parallelism": GROUPS, "key_groups": KeyGroupRange(3, 3)}
    harness = OperatorHarness(CoMapBatchesSpec(Joined, keyed=True), **groups)
    with pytest.raises(StateError, match=r"subtask 0: set_current_key\(\d+\), but records of that"):
        harness.push(rows(k=list(range(40)), v=list(range(40))))


def test_batches_without_keys_have_no_keyed_state() -> None:
    with pytest.raises(StateError, match="asks for keyed state 'seen', but its input has no key"):
        OperatorHarness(CoMapBatchesSpec(Joined))


KEPT = ListStateDescriptor("kept")


class Buffer(CoMapFunction, CheckpointedFunction):
    """Lets go of records two by two."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def initialize_state(self, context: Any) -> None:
        self.calls.append(f"initialize, restored {context.is_restored()}")
        self.state = context.get_operator_state_store().get_list_state(KEPT)
        self.kept = list(self.state.get())

    def open(self, runtime_context: Any) -> None:
        self.calls.append("open")

    def snapshot_state(self, context: Any) -> None:
        self.calls.append(f"snapshot {context.get_checkpoint_id()}")
        self.state.update(self.kept)

    def map1(self, value: Any) -> Any:
        self.kept.append(value)
        if len(self.kept) < 2:
            return None
        kept, self.kept = self.kept, []
        return tuple(kept)

    map2 = map1


def test_state_of_a_subtask_and_its_lifecycle() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    function = Buffer()
    stream = env.from_collection([1]).connect(env.from_collection([2])).map(function)
    harness = OperatorHarness.of(stream)
    harness.push([1, 2, 3])
    snapshot = harness.snapshot()
    assert function.calls == ["initialize, restored False", "open", "snapshot 1"]
    again = OperatorHarness.of(stream, restored=snapshot)
    again.push([4], port=1)
    assert (harness.outputs(), again.outputs()) == ([(1, 2)], [(3, 4)])
    assert function.calls[3:] == ["initialize, restored True", "open"]


class WritesKeyed(KeyedCoProcessFunction, CheckpointedFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def initialize_state(self, context: Any) -> None:
        pass

    def snapshot_state(self, context: Any) -> None:
        self.seen.update("whose?")

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return None

    process_element2 = process_element1


def test_there_is_no_key_while_a_snapshot_is_taken() -> None:
    harness = OperatorHarness(KeyedCoProcessSpec(KEY, KEY, WritesKeyed()))
    harness.push([1])
    with pytest.raises(StateError, match="no current key"):
        harness.snapshot()


class Later(CoProcessFunction):
    """No KeyedCoProcessFunction, and yet with state and timers where streams are keyed."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        ctx.timer_service().register_event_time_timer(9)

    process_element2 = process_element1

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.seen.value()


def test_a_function_without_keys_on_keyed_streams() -> None:
    harness = OperatorHarness(KeyedCoProcessSpec(KEY, KEY, Later()))
    harness.push([1, 2])
    harness.push([41], port=1)
    harness.watermark(9)
    assert harness.outputs() == [(1, 41), (2, 2)]


def test_results_become_columns() -> None:
    schema = Types.ROW_NAMED(["n"], [Types.LONG()]).arrow
    harness = OperatorHarness(CoProcessSpec(Numbers(), pa.schema(list(schema))))
    harness.push([1])
    harness.push([2], port=1)
    assert [batch.data.to_pydict() for batch in harness.batches()] == [{"n": [1]}, {"n": [20]}]


class Numbers(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return [(value,)]

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return [(10 * value,)]
