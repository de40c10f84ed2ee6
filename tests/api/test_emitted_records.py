"""What a function emits is what it was then, whatever it does with the object later."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
from amounts import met
from strom import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    CountTrigger,
    DataStream,
    FlatMapFunction,
    GlobalWindows,
    JobConfig,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    Row,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from strom.connectors.datagen import DataGenSource
from strom.operators.rows.forgetful import keeps_nothing
from strom.state.copies import kept


@dataclasses.dataclass
class Box:
    n: int
    more: list[int]


def put_list(held: list[Any], n: int) -> list[Any]:
    held[0] = n
    return held


def put_row(held: Row, n: int) -> Row:
    held["n"] = n
    return held


def put_dict(held: dict[str, Any], n: int) -> dict[str, Any]:
    held["n"] = n
    return held


def put_box(held: Box, n: int) -> Box:
    held.n = n
    held.more[0] = n
    return held


def put_pair(held: tuple[str, list[int]], n: int) -> tuple[str, list[int]]:
    held[1][0] = n
    return held


ROW = Types.ROW_NAMED(["n"], [Types.INT()])
Put = Callable[[Any, int], Any]
KINDS: dict[str, tuple[Callable[[], Any], Put, Any]] = {
    "list": (lambda: [0], put_list, None),
    "declared list": (lambda: [0], put_list, Types.LIST(Types.INT())),
    "row": (lambda: Row(n=0), put_row, None),
    "declared row": (lambda: Row(n=0), put_row, ROW),
    "dict": (lambda: {"n": 0}, put_dict, None),
    "declared dict": (lambda: {"n": 0}, put_dict, ROW),
    "object": (lambda: Box(0, [0]), put_box, None),
    "pair": (lambda: ("k", [0]), put_pair, None),
}
"""What makes the one object that a function reuses, what changes it, and its type."""

TAG = "aside"


class Reuses:
    """Emits one object again and again."""

    def __init__(self, kind: str, side: bool = False) -> None:
        make, self.put, info = KINDS[kind]
        self.held = make()
        self.tag = OutputTag(TAG, info) if side else None

    def made(self, n: int) -> Any:
        result = self.put(self.held, n)
        return result if self.tag is None else (self.tag, result)


class Maps(Reuses, MapFunction, CoMapFunction):
    def map(self, value: int) -> Any:
        return self.made(value)

    map1 = map2 = map


class FlatMaps(Reuses, FlatMapFunction, CoFlatMapFunction):
    def flat_map(self, value: int) -> Any:
        yield self.made(value)

    flat_map1 = flat_map2 = flat_map


class Lists(Reuses, FlatMapFunction):
    def flat_map(self, value: int) -> Any:
        return [self.made(value)]


class Processes(Reuses, ProcessFunction, CoProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield self.made(value)

    process_element1 = process_element2 = process_element


class Keyed(Reuses, KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield self.made(value)


class OnTimer(Reuses, KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield self.made(timestamp)


class Windows(Reuses, ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for value in elements:
            yield self.made(value)


class Asks(Reuses, AsyncFunction):
    async def async_invoke(self, value: int) -> list[Any]:
        return [self.made(value)]


def asked(stream: DataStream, function: Any, info: Any) -> DataStream:
    return AsyncDataStream.ordered_wait(stream, function, Time.seconds(60), 100, info)


Apply = Callable[[DataStream, str, bool, Any], DataStream]
FUNCTIONS: dict[str, Apply] = {
    "map": lambda s, k, side, info: s.map(Maps(k), info),
    "flat_map": lambda s, k, side, info: s.flat_map(FlatMaps(k), info),
    "list": lambda s, k, side, info: s.flat_map(Lists(k), info),
    "process": lambda s, k, side, info: s.process(Processes(k, side), info),
    "keyed": lambda s, k, side, info: s.key_by(one_key).process(Keyed(k, side), info),
    "timer": lambda s, k, side, info: s.key_by(one_key).process(OnTimer(k, side), info),
    "co_map": lambda s, k, side, info: s.connect(nothing(s)).map(Maps(k), info),
    "co_flat_map": lambda s, k, side, info: s.connect(nothing(s)).flat_map(FlatMaps(k), info),
    "co_process": lambda s, k, side, info: s.connect(nothing(s)).process(Processes(k, side), info),
    "window": lambda s, k, side, info: (
        s.key_by(one_key).count_window(3).process(Windows(k, side), info)
    ),
    "async": lambda s, k, side, info: asked(s, Asks(k), info),
    "batches": lambda s, k, side, info: s.map_batches(batches_of(k), output_type=info),
}
WITH_SIDES = ("process", "keyed", "timer", "co_process", "window")


def one_key(value: Any) -> int:
    return 0


def nothing(stream: DataStream) -> DataStream:
    return stream.filter(lambda value: False)


def batches_of(kind: str) -> Callable[[Any], list[Any]]:
    """A list of one batch at a time with the object that all have."""
    reuses = Reuses(kind)
    return lambda batch: [reuses.made(batch.column(0)[0].as_py())]


def numbers(env: StreamExecutionEnvironment, singly: bool) -> DataStream:
    times = WatermarkStrategy.for_monotonous_timestamps()
    timed = times.with_timestamp_assigner(lambda value, stamp: value)
    stream = env.from_collection([1, 2, 3])
    return stream if singly else stream.assign_timestamps_and_watermarks(timed)


def cases() -> list[Any]:
    mains = [(name, False) for name in FUNCTIONS]
    return mains + [(name, True) for name in WITH_SIDES]


@pytest.mark.parametrize(
    ("name", "side", "kind", "parallelism"),
    [
        (*case, kind, parallelism)
        for place, case in enumerate(cases())
        for what, kind in enumerate(KINDS)
        for parallelism in (1, 2)
        if met(place, what, parallelism, part=2)
    ],
)
def test_what_is_reused_was_emitted_as_it_was(
    name: str, side: bool, kind: str, parallelism: int
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    if name == "batches":
        env.set_buffer_timeout(0)
    make, put, info = KINDS[kind]
    stream = FUNCTIONS[name](numbers(env, name == "batches"), kind, side, None if side else info)
    if name == "batches":
        stream = stream.set_parallelism(1)
    if side:
        stream = stream.get_side_output(OutputTag(TAG))
    expected = [put(make(), n) for n in ([1] if name == "batches" else [1, 2, 3])]
    if info is ROW:
        expected = [Row(n=one["n"]) for one in expected]
    found = [stream.rebalance(), stream] if parallelism == 2 else [stream]
    for one in found:
        assert sorted(map(repr, one.execute_and_collect())) == sorted(map(repr, expected))


def collected(stream: DataStream) -> list[Any]:
    return list(stream.execute_and_collect())


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


class Buffers(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.buffer: list[int] = []

    def process_element(self, value: int, ctx: Any) -> Any:
        self.buffer.append(value)
        if len(self.buffer) == 2:
            yield self.buffer
            self.buffer.clear()


@pytest.mark.parametrize("info", [None, Types.LIST(Types.INT())])
def test_a_buffer_is_cleared_after_it_was_emitted(info: Any) -> None:
    stream = environment().from_collection([1, 2, 3, 4]).key_by(one_key)
    assert collected(stream.process(Buffers(), info)) == [[1, 2], [3, 4]]


class Remembers(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: int, ctx: Any) -> Any:
        seen = self.seen.value() or []
        seen.append(value)
        self.seen.update(seen)
        yield seen


def test_what_state_holds_is_emitted_as_it_was() -> None:
    stream = environment().from_collection([1, 2, 3]).key_by(one_key)
    assert collected(stream.process(Remembers())) == [[1], [1, 2], [1, 2, 3]]


def first_changed(a: Any, b: Any) -> Any:
    a[-1] += b[-1]
    return a


def second_changed(a: Any, b: Any) -> Any:
    b[-1] += a[-1]
    return b


@pytest.mark.parametrize("reduce", [first_changed, second_changed])
@pytest.mark.parametrize("make", [lambda n: [n], lambda n: Row(n)], ids=["list", "row"])
def test_reductions_that_change_what_they_are_given(make: Any, reduce: Any) -> None:
    keyed = environment().from_collection([make(n) for n in (1, 2, 3)]).key_by(one_key)
    assert collected(keyed.reduce(reduce)) == [make(1), make(3), make(6)]


@pytest.mark.parametrize("reduce", [first_changed, second_changed])
def test_windows_of_one_record_change_it_for_themselves(reduce: Any) -> None:
    times = WatermarkStrategy.for_monotonous_timestamps()
    timed = times.with_timestamp_assigner(lambda value, stamp: value[0])
    stream = environment().from_collection([[1], [2], [3]])
    keyed = stream.assign_timestamps_and_watermarks(timed).key_by(one_key)
    windows = keyed.window(SlidingEventTimeWindows.of(10, 5))
    assert collected(windows.reduce(reduce)) == [[6], [6]]


class Listed(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return a + b


def test_an_accumulator_is_emitted_as_it_was() -> None:
    keyed = environment().from_collection([1, 2, 3, 4]).key_by(one_key)
    windows = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    assert collected(windows.aggregate(Listed())) == [[1, 2], [1, 2, 3, 4]]


class Twice(ProcessFunction):
    def process_element(self, value: list[int], ctx: Any) -> Any:
        yield OutputTag(TAG), value
        value.append(5)
        yield value


def test_a_record_is_changed_between_two_outputs() -> None:
    main = environment().from_collection([[1]]).process(Twice())
    side = main.get_side_output(OutputTag(TAG))
    assert sorted(collected(main.union(side))) == [[1], [1, 5]]


class KeepsAndChanges:
    """A filter."""

    def __init__(self) -> None:
        self.last: list[int] = []

    def __call__(self, value: list[int]) -> bool:
        self.last.append(-1)
        self.last = value
        return True


def test_a_filter_changes_what_it_has_let_through() -> None:
    stream = environment().from_collection([[1], [2], [3]])
    assert collected(stream.filter(KeepsAndChanges())) == [[1], [2], [3]]


def test_a_source_gives_one_object_again_and_again() -> None:
    held = [0]

    def generate(start: int, count: int) -> list[Any]:
        held[0] = start
        return [held] * count

    source = DataGenSource(generate, 3, splits=1, block=1)
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(batch_size=1))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    assert collected(stream) == [[0], [1], [2]]


def test_a_collection_is_that_of_the_call() -> None:
    values = [[1], [2]]
    stream = environment().from_collection(values)
    values[0].append(9)
    assert collected(stream) == [[1], [2]]


def test_object_reuse_hands_on_the_object_itself() -> None:
    env = environment()
    env.get_config().enable_object_reuse()
    assert collected(env.from_collection([1, 2]).map(Maps("list"))) == [[2], [2]]


def test_what_cannot_be_pickled_is_handed_on_as_it_is() -> None:
    lock = threading.Lock()
    assert kept(lock) is lock
    record = [1, lock, [2]]
    copy = kept(record)
    assert copy == record
    assert copy is not record
    assert copy[1] is lock
    assert copy[2] is not record[2]
    locked = environment().from_collection([1]).map(lambda n: (n, threading.Lock()))
    assert collected(locked.map(lambda pair: pair[1].locked())) == [False]


FACTOR = 3
SHARED: list[int] = []


def test_functions_that_keep_nothing() -> None:
    for forgets in (lambda v: (v.a, v.b * FACTOR), lambda v: [len(x) for x in v], lambda v: v):
        assert keeps_nothing(forgets)


def test_functions_that_may_keep_something() -> None:
    held: list[int] = []
    last = 0

    def with_default(value: Any, kept: list[int] = []) -> Any:  # noqa: B006
        kept.append(value)
        return kept

    def counts(value: Any) -> Any:
        nonlocal last
        last = value
        return last

    class Held:
        values: list[int] = []  # noqa: RUF012

    keepers: list[Any] = [with_default, counts, print, Maps("list").map]
    keepers += [lambda v: SHARED, lambda v: held, lambda v: Held.values, lambda v: Held]
    keepers += [lambda v: (lambda: SHARED)(), lambda v: v.__class__.values]
    assert not any(map(keeps_nothing, keepers))
