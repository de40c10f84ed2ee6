"""Random types through every kind of operator: what comes out is what went in, and its type.

One job per example has all of them side by side, at parallelism 2, with exchanges between; each
result is looked at by a row function right behind its operator, and collected too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from amounts import examples
from hypothesis import HealthCheck, given, settings
from strom import (
    CoMapFunction,
    CountTumblingWindowAssigner,
    DataStream,
    FilterFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RowTypeInfo,
    RuntimeContext,
    StreamExecutionEnvironment,
    TypeInformation,
    ValueStateDescriptor,
    WindowFunction,
)
from typed_kit import Records, exact, records, single_values


class Aside(ProcessFunction):
    def __init__(self, tag: OutputTag) -> None:
        self._tag = tag

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self._tag, value


class Kept(KeyedProcessFunction):
    """Gives what it has read back from all kinds of state."""

    def __init__(self, info: TypeInformation) -> None:
        self._info = info

    def open(self, context: RuntimeContext) -> None:
        info = self._info
        self._value = context.get_state(ValueStateDescriptor("value", info))
        self._list = context.get_list_state(ListStateDescriptor("list", info))
        self._map = context.get_map_state(MapStateDescriptor("map", int, info))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._value.update(value)
        self._list.update([self._value.value()])
        self._map.put(1, next(iter(self._list.get())))
        yield self._map.get(1)


class All(FilterFunction):
    def filter(self, value: Any) -> bool:
        return True


class First(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return None


class Apply(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return list(inputs)


class Process(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield from elements


def ways(
    stream: DataStream, info: TypeInformation, key: Callable[[Any], int]
) -> dict[str, DataStream]:
    """What must give the records as they are, by name."""
    keyed = stream.key_by(key)
    single = keyed.window(CountTumblingWindowAssigner.of(1))
    tag = OutputTag("side", info)
    return {
        "source": stream,
        "map": stream.map(lambda record: record, output_type=info),
        "flat_map": stream.flat_map(lambda record: [record], output_type=info),
        "filter": stream.filter(lambda record: True),
        "process": stream.process(Aside(tag)).get_side_output(tag),
        "keyed state": keyed.process(Kept(info), output_type=info),
        "exchange": stream.rebalance().map(lambda record: record, output_type=info).rebalance(),
        "reduce": keyed.reduce(lambda so_far, record: record),
        "window reduce": single.reduce(lambda so_far, record: record),
        "window apply": single.apply(Apply(), output_type=info),
        "window process": single.process(Process(), output_type=info),
        "union": stream.union(),
        "union of two": stream.filter(lambda record: key(record) % 2).union(
            stream.filter(lambda record: not key(record) % 2)
        ),
        "keyed filter": keyed.filter(All()),
        "connected": stream.connect(stream.filter(lambda record: False)).map(First(), info),
    }


def ways_of_fields(stream: DataStream) -> dict[str, DataStream]:
    """And of records that have fields."""
    keyed = stream.key_by(lambda record: record[0])
    return {
        "reduce tuples": keyed.reduce(lambda so_far, record: tuple(record)),
        "max_by": keyed.max_by(0),
    }


def same_type(found: TypeInformation, declared: TypeInformation) -> bool:
    """Columns do not tell CHAR from STRING, nor one kind of list from another."""
    assert found.arrow is not None
    assert declared.arrow is not None
    return type(found) is type(declared) and found.arrow.equals(declared.arrow, check_metadata=True)


def check(drawn: Records, results: dict[str, DataStream]) -> None:
    """What each result holds is what was drawn, also where a function behind it looks."""
    seen = [
        result.map(lambda record, name=name: (name, str(exact(record)), record))
        for name, result in results.items()
    ]
    first, *others = seen
    found: dict[str, list[tuple[str, str]]] = {}
    for name, text, record in first.union(*others).execute_and_collect():
        found.setdefault(name, []).append((text, str(exact(record))))
    assert set(found) == set(results)
    for name, pairs in found.items():
        if name == "max_by":
            expected = {str(exact(value)) for value in drawn.values}
            assert {text for text, _ in pairs} <= expected
        else:
            expected = Counter(str(exact(value)) for value in drawn.values)
            assert Counter(text for text, _ in pairs) == expected, name
        assert all(text == again for text, again in pairs), name


def source(drawn: Records) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    return env.from_collection(drawn.values, drawn.type)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(records())
def test_records_come_out_of_every_operator_as_they_went_in(drawn: Records) -> None:
    stream = source(drawn)
    results = ways(stream, drawn.type, lambda record: record[0]) | ways_of_fields(stream)
    for name, result in results.items():
        assert same_type(result.get_type(), drawn.type), name
    check(drawn, results)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(single_values())
def test_values_come_out_of_every_operator_as_they_went_in(drawn: Records) -> None:
    results = ways(source(drawn), drawn.type, lambda value: len(str(exact(value))) % 3)
    for name, result in results.items():
        assert result.get_type() == drawn.type, name
    check(drawn, results)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(records())
def test_records_are_collected_as_they_went_in(drawn: Records) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    collected = list(env.from_collection(drawn.values, drawn.type).execute_and_collect())
    assert list(map(exact, collected)) == list(map(exact, drawn.values))
    assert isinstance(drawn.type, RowTypeInfo) != (type(collected[0]) is tuple)
