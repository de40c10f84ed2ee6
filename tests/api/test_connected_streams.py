"""Connected and broadcast streams as programs write them: what is recorded, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from strom import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    ConfigurationError,
    ConnectedStreams,
    CoProcessFunction,
    DataStream,
    DiscardSink,
    GraphError,
    JobConfig,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
    MapStateDescriptor,
    StreamExecutionEnvironment,
    TypeMismatchError,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from strom.api.specs.connected import KeyedCoProcessSpec, OneOrderSpec
from strom.connectors.datagen import DataGenSource
from strom.engine.graph.model import Broadcast, KeyGroups

ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
RULES = MapStateDescriptor("rules")


class Both(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    process_element2 = process_element1


class KeyedBoth(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_current_key(), value

    process_element2 = process_element1


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    process_broadcast_element = process_element


class RuledByKey(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    process_broadcast_element = process_element


class Maps(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


class FlatMaps(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return [value, value]

    def flat_map2(self, value: Any) -> Any:
        return None


class Batches:
    def map_batches1(self, batch: Any) -> Any:
        return batch

    map_batches2 = map_batches1


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=parallelism))


def rows(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", 1), ("b", 2)], ROW)


def nodes(stream: DataStream) -> list[Any]:
    stream.sink_to(DiscardSink())
    return list(stream.get_execution_environment().get_stream_graph().nodes)


def test_connect_leads_to_the_right_class() -> None:
    env = environment()
    first, second = rows(env), rows(env)
    assert type(first.connect(second)) is ConnectedStreams
    assert type(second.broadcast()) is DataStream
    broadcast = second.broadcast(RULES, MapStateDescriptor("other"))
    assert type(broadcast) is BroadcastStream
    assert [one.name for one in broadcast.broadcast_state_descriptors] == ["rules", "other"]
    assert type(first.connect(ds=broadcast)) is BroadcastConnectedStream
    assert type(first.key_by("k").connect(broadcast)) is BroadcastConnectedStream


def test_results_have_the_declared_type() -> None:
    env = environment()
    first, second = rows(env), rows(env)
    both = first.connect(second).process(Both(), output_type=ROW)
    again = both.connect(second).map(Maps(), ROW).select("n")
    assert sorted(again.execute_and_collect()) == [(1,)] * 3 + [(2,)] * 3


def test_flat_map_gives_none_or_many() -> None:
    env = environment()
    stream = env.from_collection([1]).connect(env.from_collection([2])).flat_map(FlatMaps())
    assert list(stream.execute_and_collect()) == [1, 1]


class ByName(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value.k


@pytest.mark.parametrize(
    "keys",
    [("k", "k"), (lambda r: r.k, "k"), ("k", ByName()), (["k", "n"], ("k", "n"))],
)
def test_keys_are_given_as_to_key_by(keys: Any) -> None:
    env = environment(2)
    connected = rows(env).key_by("n").connect(rows(env))
    keyed = connected.key_by(*keys, key_type=Types.STRING())
    stream = keyed.process(KeyedBoth())
    spec: Any = stream._settable("test").spec
    assert isinstance(spec, KeyedCoProcessSpec)
    edges = stream._settable("test").inputs
    assert [one.port for one in edges] == [0, 1]
    assert [one.partitioner for one in edges] == [KeyGroups(spec.key), KeyGroups(spec.right_key)]
    found = [(key, value.n) for key, value in stream.execute_and_collect()]
    assert sorted(n for _, n in found) == [1, 1, 2, 2]


def test_keys_before_connect_and_a_function_without_keys() -> None:
    """A CoProcessFunction on keyed streams has state and timers, if one is keyed it has none."""
    env = environment()
    first, second = rows(env).key_by("k"), rows(env).key_by("k")
    assert isinstance(first.connect(second).process(Both())._settable("t").spec, KeyedCoProcessSpec)
    half = first.connect(rows(env)).process(Both())
    assert not isinstance(half._settable("t").spec, KeyedCoProcessSpec)
    with pytest.raises(ConfigurationError, match="KeyedBoth is a KeyedCoProcessFunction, and not"):
        first.connect(rows(env)).process(KeyedBoth())


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda a, b: a.connect(1), "connect: expected a stream, got 1"),
        (lambda a, b: a.connect(b).map(lambda v: v), "map of connected streams: expected a CoMap"),
        (lambda a, b: a.connect(b).map(Maps), r"pass an instance: Maps\(...\)"),
        (lambda a, b: a.connect(b).flat_map(Maps()), "expected a CoFlatMapFunction"),
        (lambda a, b: a.connect(b).process(Maps()), "expected a CoProcessFunction or a KeyedCo"),
        (lambda a, b: a.connect(b).map_batches(print), "no method map_batches1 and map_batches2"),
        (lambda a, b: a.connect(b).map_batches(Batches, "csv"), "batch_format must be one of"),
        (lambda a, b: a.connect(b).key_by("k", ["k", "n"]), "has 1 key columns .* one 2"),
        (lambda a, b: a.broadcast(ValueStateDescriptor("x")), "expected MapStateDescriptors"),
        (lambda a, b: a.broadcast(RULES, RULES), r"different names, one at least, not \['rules', "),
        (lambda a, b: BroadcastStream(a, []), "different names, one at least"),
        (
            lambda a, b: a.connect(b.broadcast(RULES)).process(RuledByKey()),
            "expected a BroadcastProcessFunction, got .*; the stream is not keyed",
        ),
        (
            lambda a, b: a.key_by("k").connect(b.broadcast(RULES)).process(Ruled()),
            "expected a KeyedBroadcastProcessFunction, got .*; the stream is keyed",
        ),
    ],
)
def test_mistakes_are_told_where_they_are_made(write: Any, text: str) -> None:
    env = environment()
    with pytest.raises(ConfigurationError, match=text):
        write(rows(env), rows(env))


def test_keys_that_can_never_be_equal_are_refused() -> None:
    env = environment()
    with pytest.raises(TypeMismatchError, match="connect: key 'k' of the left side is string"):
        rows(env).connect(rows(env)).key_by("k", "n")


def test_streams_of_two_environments_are_refused() -> None:
    mine, other = rows(environment()), rows(environment())
    for write in (lambda: mine.connect(other), lambda: mine.connect(other.broadcast(RULES))):
        with pytest.raises(GraphError, match="connect: the streams belong to different"):
            write()


def test_what_is_broadcast_goes_through_one_subtask() -> None:
    env = environment(4)
    stream = rows(env).connect(rows(env).broadcast(RULES)).process(Ruled())
    order = stream._settable("test").inputs[1]
    assert (order.port, order.partitioner, order.source.parallelism) == (1, Broadcast(), 1)
    found = {node.name: node.parallelism for node in nodes(stream)}
    assert (found["Broadcast"], found["BroadcastProcess"]) == (1, 4)


def endless(env: StreamExecutionEnvironment, strategy: WatermarkStrategy | None) -> DataStream:
    source = DataGenSource(lambda start, n: list(range(start, start + n)), rate=1000)
    return env.from_source(source, strategy)


TIMES = WatermarkStrategy.for_monotonous_timestamps()


@pytest.mark.parametrize(
    ("write", "timeless"),
    [
        (lambda env: rows(env), False),
        (lambda env: endless(env, None), True),
        (lambda env: endless(env, None).map(abs).filter(abs), True),
        (lambda env: endless(env, None).union(endless(env, TIMES)), True),
        (lambda env: endless(env, TIMES), False),
        (lambda env: endless(env, None).assign_timestamps_and_watermarks(TIMES).map(abs), False),
    ],
)
def test_whether_a_broadcast_stream_ever_says_a_time(write: Any, timeless: bool) -> None:
    env = environment()
    stream = rows(env).connect(write(env).broadcast(RULES)).process(Ruled())
    spec = stream._settable("test").inputs[1].source.spec
    assert spec == OneOrderSpec(timeless)
    stream.sink_to(DiscardSink())
    assert ("it holds back nobody's event time" in env.explain()) == timeless


def test_state_of_a_subtask_is_for_functions_of_subtasks() -> None:
    """A key selector is called by the exchange, where nobody keeps state."""

    class Odd(KeySelector, CheckpointedFunction):
        def get_key(self, value: Any) -> Any:
            return value

        def initialize_state(self, context: Any) -> None:
            pass

        def snapshot_state(self, context: Any) -> None:
            pass

    with pytest.raises(ConfigurationError, match="Odd is a CheckpointedFunction, but it is called"):
        rows(environment()).key_by(Odd())
