"""United streams are of one type, as far as their types are known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from strom import DataStream, GraphError, Row, StreamExecutionEnvironment, Types

INT, TEXT = Types.INT(), Types.STRING()


@pytest.fixture
def env() -> Any:
    return StreamExecutionEnvironment.get_execution_environment()


def stream_of(env: Any, values: list[Any], kind: Any) -> DataStream:
    stream: DataStream = env.from_collection(values, kind)
    return stream


DIFFERENT = {
    "tuples": (([(1,)], Types.TUPLE([INT])), ([("a",)], Types.TUPLE([TEXT]))),
    "tuple and row": (([(1,)], Types.TUPLE([INT])), ([Row(1)], Types.ROW([INT]))),
    "tuple and row within": (
        ([((1,),)], Types.TUPLE([Types.TUPLE([INT])])),
        ([(Row(1),)], Types.TUPLE([Types.ROW([INT])])),
    ),
    "names": (([(1,)], Types.ROW_NAMED(["a"], [INT])), ([(1,)], Types.ROW_NAMED(["b"], [INT]))),
    "widths": (([(1,)], Types.TUPLE([INT])), ([(1, 2)], Types.TUPLE([INT, INT]))),
    "integers": (([(1,)], Types.TUPLE([INT])), ([(1,)], Types.TUPLE([Types.LONG()]))),
    "values": (([1], INT), (["a"], TEXT)),
    "value and row": (([1], INT), ([(1,)], Types.ROW([INT]))),
    "lists": (([[1]], Types.LIST(INT)), ([["a"]], Types.LIST(TEXT))),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_streams_of_different_types_are_not_united(env: Any, name: str) -> None:
    one, other = (stream_of(env, *given) for given in DIFFERENT[name])
    types = f"{one.get_type()} and {other.get_type()}"
    with pytest.raises(GraphError) as refused:
        one.union(other)
    assert f"cannot union streams of different types: {types}" in str(refused.value)


def test_streams_of_one_type_are_united(env: Any) -> None:
    pairs = Types.TUPLE([INT, TEXT])
    both = stream_of(env, [(1, "a")], pairs).union(stream_of(env, [(2, "b")], pairs))
    assert both.get_type() == pairs
    assert sorted(both.execute_and_collect()) == [(1, "a"), (2, "b")]


def test_an_undeclared_stream_unites_with_any(env: Any) -> None:
    declared, objects = stream_of(env, [(1,)], Types.TUPLE([INT])), env.from_collection([("a",)])
    both = declared.union(objects)
    assert both.get_type() == Types.PICKLED_BYTE_ARRAY()
    assert set(both.execute_and_collect()) == {(1,), ("a",)}


def test_texts_that_are_stored_in_different_ways_are_one_type(env: Any) -> None:
    plain = env.from_collection(pa.record_batch({"t": pa.array(["a"], pa.string())}))
    large = env.from_collection(pa.record_batch({"t": pa.array(["b"], pa.large_string())}))
    assert set(plain.union(large).execute_and_collect()) == {("a",), ("b",)}
