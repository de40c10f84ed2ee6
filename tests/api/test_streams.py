"""What stream methods record: specs, edges, views, early checks."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom.api.functions.user_functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelectorFunction,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
)
from strom.api.specs.records import (
    FilterSpec,
    FlatMapSpec,
    KeyedProcessSpec,
    MapSpec,
    ProcessSpec,
    ReduceSpec,
    RollingSpec,
)
from strom.api.streams.data_stream import StreamExecutionEnvironment as Env
from strom.api.streams.keyed_records import KeyedFilter, KeyedFlatMap, KeyedMap
from strom.api.types.type_info import Types
from strom.api.watermarks import WatermarkStrategy
from strom.core.errors import ConfigurationError, GraphError
from strom.core.keys import ColumnKey, ExpressionKey, FunctionKey
from strom.engine.graph.model import (
    Broadcast,
    Custom,
    Forward,
    Global,
    KeyGroups,
    Rebalance,
    Rescale,
    Shuffle,
    StreamEdge,
    StreamNode,
)


class AddOne(MapFunction):
    def map(self, value: Any) -> Any:
        return value + 1


class Twice(FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        return [value, value]


class Odd(FilterFunction):
    def filter(self, value: Any) -> bool:
        return bool(value % 2)


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class ByParity(KeySelectorFunction):
    def get_key(self, value: Any) -> Any:
        return value % 2


class OpenKey(ByParity):
    def open(self, runtime_context: Any) -> None:
        pass


class Modulo(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        return int(key) % num_partitions


class Add(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


def last(env: Env) -> StreamNode:
    """The operator before the only sink."""
    return env.get_stream_graph().nodes[-2]


def last_spec(stream: Any) -> Any:
    stream.print()
    return last(stream.get_execution_environment()).spec


def last_edge(stream: Any) -> StreamEdge:
    """The edge into a sink put behind `stream`."""
    stream.print()
    return stream.get_execution_environment().get_stream_graph().edges[-1]  # type: ignore[no-any-return]


def test_record_functions(env: Env) -> None:
    numbers = env.from_collection([1])
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    function = AddOne()
    spec = last_spec(numbers.map(function, output_type=row))
    assert spec == MapSpec(function, pa.schema({"n": pa.int64()}))
    assert last_spec(numbers.flat_map(range)) == FlatMapSpec(range)
    assert last_spec(numbers.filter(bool)) == FilterSpec(bool)
    assert isinstance(last_spec(numbers.process(Plain())), ProcessSpec)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    found = last_spec(numbers.assign_timestamps_and_watermarks(strategy))
    assert found.strategy is strategy


def test_column_expressions(env: Env) -> None:
    table = env.from_collection(pa.table({"a": [1], "b": [2]}))
    spec = last_spec(table.select("a", pl.col("b") * 2, c=pl.col("a") + 1, d="b"))
    frame = pl.DataFrame({"a": [1], "b": [2]})
    assert spec.kind == "select"
    assert frame.select(*spec.polars_expressions()).to_dict(as_series=False) == {
        "a": [1],
        "b": [4],
        "c": [2],
        "d": [2],
    }
    assert last_spec(table.with_columns(c=pl.lit(1))).kind == "with_columns"
    spec = last_spec(table.filter(pl.col("a") > 0, pl.col("b") > 0))
    assert (spec.kind, len(spec.expressions)) == ("filter", 2)


def test_map_batches(env: Env) -> None:
    class Model:
        def __call__(self, batch: Any) -> Any:
            return batch

    stream = env.from_collection(pa.table({"a": [1]}))
    spec = last_spec(stream.map_batches(Model, "polars", output_type={"a": int}))
    assert (spec.function, spec.batch_format) == (Model, "polars")
    assert spec.schema == pa.schema({"a": pa.int64()})


@pytest.mark.parametrize(
    ("keys", "selector"),
    [
        (("a",), ColumnKey(("a",))),
        (("a", "b"), ColumnKey(("a", "b"))),
        ((len,), FunctionKey(len)),
    ],
)
def test_key_selectors(env: Env, keys: Any, selector: Any) -> None:
    edge = last_edge(env.from_collection([1]).key_by(*keys))
    assert edge.partitioner == KeyGroups(selector)


def test_expression_keys_mix_with_names(env: Env) -> None:
    partitioner: Any = last_edge(env.from_collection([1]).key_by("a", pl.col("b") % 2)).partitioner
    assert isinstance(partitioner.key, ExpressionKey)
    assert [e.meta.output_name() for e in partitioner.key.expressions] == ["a", "b"]


def test_key_selector_function_and_custom_partitioner(env: Env) -> None:
    stream = env.from_collection([1])
    key: Any = last_edge(stream.key_by(ByParity(), key_type=Types.LONG())).partitioner
    assert key.key.function(3) == 1
    custom: Any = last_edge(stream.partition_custom(Modulo(), lambda v: v)).partitioner
    assert isinstance(custom, Custom)
    assert custom.partition(7, 4) == 3


def test_both_sides_of_a_keyed_exchange_have_one_selector(env: Env) -> None:
    env.from_collection([1]).key_by("a").process(Keyed()).print()
    graph = env.get_stream_graph()
    partitioner: Any = graph.edges[0].partitioner
    assert partitioner.key is graph.nodes[1].spec.key


def test_keyed_operators(env: Env) -> None:
    keyed = env.from_collection([1]).key_by("a")
    key = ColumnKey(("a",))
    assert isinstance(last_spec(keyed.process(Keyed())), KeyedProcessSpec)
    add = Add()
    assert last_spec(keyed.reduce(add)) == ReduceSpec(key, add)
    assert last_spec(keyed.sum("n")) == RollingSpec(key, "sum", "n")
    assert last_spec(keyed.min(1)) == RollingSpec(key, "min", 1)
    assert last_spec(keyed.max()) == RollingSpec(key, "max", 0)
    assert last_spec(keyed.min_by("n")) == RollingSpec(key, "min_by", "n")
    assert last_spec(keyed.max_by("n")) == RollingSpec(key, "max_by", "n")


def test_function_objects_on_a_keyed_stream_may_use_keyed_state(env: Env) -> None:
    keyed = env.from_collection([1]).key_by(ByParity())
    cases: list[tuple[Any, Any, type, list[int]]] = [
        (keyed.map, AddOne(), KeyedMap, [4]),
        (keyed.flat_map, Twice(), KeyedFlatMap, [3, 3]),
        (keyed.filter, Odd(), KeyedFilter, [3]),
    ]
    for method, function, adapter, expected in cases:
        spec = last_spec(method(function))
        assert isinstance(spec, KeyedProcessSpec)
        assert isinstance(spec.function, adapter)
        assert list(spec.function.process_element(3, None)) == expected
    assert isinstance(last_spec(keyed.map(abs)), MapSpec)
    assert isinstance(last_spec(keyed.filter(bool)), FilterSpec)
    assert isinstance(last_spec(keyed.flat_map(range)), FlatMapSpec)


def test_keyed_adapters_pass_the_lifecycle_on() -> None:
    events: list[str] = []

    class Stateful(MapFunction):
        def open(self, runtime_context: Any) -> None:
            events.append(f"open {runtime_context}")

        def map(self, value: Any) -> Any:
            return value

        def close(self) -> None:
            events.append("close")

    adapter = KeyedMap(Stateful())
    context: Any = "context"
    adapter.open(context)
    adapter.close()
    assert events == ["open context", "close"]


# --- views -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("rebalance", Rebalance()),
        ("rescale", Rescale()),
        ("shuffle", Shuffle()),
        ("broadcast", Broadcast()),
        ("global_", Global()),
        ("forward", Forward()),
    ],
)
def test_partitioners_become_the_edge(env: Env, method: str, expected: Any) -> None:
    edge = last_edge(getattr(env.from_collection([1]), method)())
    assert edge.partitioner == expected


def test_the_last_partitioner_wins(env: Env) -> None:
    edge = last_edge(env.from_collection([1]).broadcast().rebalance())
    assert edge.partitioner == Rebalance()


@pytest.mark.parametrize("method", ["rebalance", "rescale", "shuffle", "broadcast", "forward"])
def test_a_keyed_stream_keeps_its_partitioning(env: Env, method: str) -> None:
    keyed = env.from_collection([1]).key_by("a")
    with pytest.raises(GraphError, match="ahead of key_by, or behind an operator"):
        getattr(keyed, method)()


def test_union_keeps_each_streams_own_partitioning(env: Env) -> None:
    a, b = env.from_collection([1]), env.from_collection([2])
    a.shuffle().union(b, a.map(abs).broadcast()).print()
    edges = env.get_stream_graph().edges[-3:]
    assert [(e.source, e.partitioner) for e in edges] == [
        (0, Shuffle()),
        (1, Forward()),
        (2, Broadcast()),
    ]


def test_side_outputs(env: Env) -> None:
    processed = env.from_collection([1]).process(Plain())
    edge = last_edge(processed.get_side_output(OutputTag("late")).rebalance())
    assert (edge.source, edge.tag, edge.partitioner) == (1, "late", Rebalance())


def test_views_have_no_settings_and_no_side_outputs(env: Env) -> None:
    stream = env.from_collection([1])
    for view in (stream.rebalance(), stream.union(stream), stream.key_by("a")):
        with pytest.raises(GraphError, match=r"uid\(\) sets an operator's property"):
            view.uid("x")
        with pytest.raises(GraphError, match="right behind the operator"):
            view.get_side_output(OutputTag("late"))


def test_settings_reach_the_node(env: Env) -> None:
    stream = env.from_collection([1]).map(abs).name("positive").uid("p").set_description("abs")
    stream.set_parallelism(3).set_max_parallelism(6).slot_sharing_group("cpu").start_new_chain()
    stream.print("id").name("out").disable_chaining()
    node, sink = env.get_stream_graph().nodes[1:]
    assert (node.name, node.uid, node.description) == ("positive", "p", "abs")
    assert (node.parallelism, node.max_parallelism) == (3, 6)
    assert (node.slot_sharing_group, node.chaining) == ("cpu", "head")
    assert (sink.name, sink.chaining, sink.is_sink) == ("out", "never", True)
    assert sink.spec.sink.identifier == "id"
    assert stream.get_name() == "positive"


def test_never_chained_stays_so(env: Env) -> None:
    stream = env.from_collection([1]).map(abs).disable_chaining().start_new_chain()
    stream.print()
    assert last(env).chaining == "never"


def test_force_non_parallel(env: Env) -> None:
    stream = env.set_parallelism(4).from_collection([1]).map(abs).force_non_parallel()
    stream.set_parallelism(1).print()
    assert last(env).parallelism == 1
    with pytest.raises(GraphError, match=r"'Map' works only with parallelism 1, not 2"):
        stream.set_parallelism(2)


# --- early checks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.map(3), r"map: expected a callable or a MapFunction, got 3 \(int\)"),
        (lambda s: s.map(AddOne), r"map: got the class AddOne; pass an instance: AddOne\(...\)"),
        (lambda s: s.map(Odd()), "map: expected a callable or a MapFunction"),
        (lambda s: s.flat_map("x"), "flat_map: expected"),
        (lambda s: s.filter(None), "filter: expected"),
        (lambda s: s.filter(), "filter: give one function or polars expressions"),
        (lambda s: s.filter(bool, bool), "filter: give one function"),
        (lambda s: s.process(abs), "process: expected a ProcessFunction"),
        (lambda s: s.process(Keyed()), "key_by first"),
        (lambda s: s.key_by("a").process(Plain()), "process on a keyed stream: expected a Keyed"),
        (lambda s: s.key_by("a").reduce(1), "reduce: expected a callable or a ReduceFunction"),
        (lambda s: s.key_by("a").sum(-1), "sum: the field must be"),
        (lambda s: s.key_by(), "key_by: give a column name"),
        (lambda s: s.key_by(0), "key_by: expected a callable or a KeySelectorFunction"),
        (lambda s: s.key_by("a", "a"), "not distinct"),
        (lambda s: s.key_by("a", abs), "several keys must all be"),
        (lambda s: s.key_by(OpenKey()), r"OpenKey overrides open\(\)"),
        (lambda s: s.partition_custom(1, "a"), "partition_custom: expected"),
        (lambda s: s.select(), "select: give at least one"),
        (lambda s: s.select(3), r"select: expected a column name.*pl\.lit"),
        (lambda s: s.map_batches(int), "class int has no __call__"),
        (lambda s: s.map_batches(3), "map_batches: expected a callable taking a batch"),
        (lambda s: s.map_batches(abs, "csv"), "batch_format must be one of"),
        (lambda s: s.assign_timestamps_and_watermarks(5), "expected a WatermarkStrategy"),
        (lambda s: s.sink_to(print), "sink_to: expected a Sink"),
        (lambda s: s.union(1), "union: expected streams"),
        (lambda s: s.get_side_output("late"), "expected an OutputTag"),
        (lambda s: s.name(""), "non-empty string"),
        (lambda s: s.uid(3), "non-empty string"),
        (lambda s: s.set_parallelism(0), "set_parallelism: parallelism must be an int"),
        (lambda s: s.set_max_parallelism(10**6), "at most 32768"),
        (lambda s: s.map(abs, output_type="INT"), "'INT' declares no type"),
        (lambda s: s.execute_and_collect(limit=0), "limit must be an int of at least 1"),
    ],
)
def test_mistakes_are_refused_in_the_line_that_makes_them(
    env: Env, call: Any, message: str
) -> None:
    stream = env.from_collection([1])
    with pytest.raises(ConfigurationError, match=message):
        call(stream)


def test_streams_of_two_environments_do_not_mix(env: Env) -> None:
    other = Env.get_execution_environment().from_collection([1])
    with pytest.raises(GraphError, match="different environments"):
        env.from_collection([1]).union(other)
