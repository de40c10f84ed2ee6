"""What a function gives besides the declared columns is an error that names it, and never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from strom import (
    AsyncDataStream,
    CoMapFunction,
    DataStream,
    JobFailedError,
    OutputTag,
    ProcessFunction,
    Row,
    StreamExecutionEnvironment,
    TypeMismatchError,
    Types,
)

A = Types.ROW_NAMED(["a"], [Types.INT()])
NESTED = Types.ROW_NAMED(["r"], [A])
ROW_AB = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])


@pytest.fixture
def one() -> DataStream:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1])


@dataclass
class Wide:
    a: int
    b: int


class WideTuple(NamedTuple):
    a: int
    b: int


def table(batch: Any = None) -> pa.RecordBatch:
    return pa.record_batch({"a": [1], "b": [2]})


BATCHES: dict[str, Callable[[], Any]] = {
    "arrow": table,
    "arrow table": lambda: pa.Table.from_batches([table()]),
    "polars": lambda: pl.DataFrame({"a": [1], "b": [2]}),
    "pandas": lambda: pd.DataFrame({"a": [1], "b": [2]}),
    "arrays": lambda: {"a": [1], "b": [2]},
    "dicts": lambda: [{"a": 1, "b": 2}],
    "dataclasses": lambda: [Wide(1, 2)],
    "several kinds": lambda: [Row(a=1), {"a": 1, "b": 2}],
}

EXTRA = r"(fields|columns) \['b'\]"


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str, one: DataStream) -> None:
    make = BATCHES[name]
    stream = one.map_batches(lambda batch: make(), output_type=A)
    with pytest.raises(JobFailedError, match=f"'MapBatches', subtask 0: .*{EXTRA}"):
        list(stream.execute_and_collect())


async def asked(batch: Any) -> Any:
    return table()


async def asked_rows(value: Any) -> Any:
    return [{"a": 1, "b": 2}]


class Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return Wide(1, 2)

    def map2(self, value: Any) -> Any:
        return None


class BothBatches:
    def map_batches1(self, batch: Any) -> Any:
        return table()

    def map_batches2(self, batch: Any) -> Any:
        return None


class Aside(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield OutputTag("side", A), {"a": 1, "b": 2}


PLACES: dict[str, Callable[[DataStream], DataStream]] = {
    "map": lambda s: s.map(lambda n: {"a": 1, "b": 2}, output_type=A),
    "map to dataclasses": lambda s: s.map(lambda n: Wide(1, 2), output_type=A),
    "flat_map": lambda s: s.flat_map(lambda n: [{"a": 1, "b": 2}], output_type=A),
    "connected": lambda s: s.connect(s).map(Both(), output_type=A),
    "connected batches": lambda s: s.connect(s).map_batches(BothBatches(), output_type=A),
    "async": lambda s: AsyncDataStream.unordered_wait(s, asked_rows, 10_000, output_type=A),
    "async batches": lambda s: s.async_map_batches(asked, output_type=A),
    "side output": lambda s: s.process(Aside()).get_side_output(OutputTag("side")),
    "late type": lambda s: s.process(Undeclared()).get_side_output(OutputTag("side", A)),
}


class Undeclared(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield OutputTag("side"), Wide(1, 2)


@pytest.mark.parametrize("name", PLACES)
def test_every_place_that_takes_a_type(name: str, one: DataStream) -> None:
    with pytest.raises(JobFailedError, match=f"subtask 0: .*{EXTRA}"):
        list(PLACES[name](one).execute_and_collect())


NESTED_VALUES = {
    "dict": lambda: [({"a": 1, "b": 2},)],
    "dataclass": lambda: [(Wide(1, 2),)],
    "row": lambda: [(Row(a=1, b=2),)],
    "named tuple": lambda: [(WideTuple(1, 2),)],
    "columns": lambda: pa.record_batch({"r": pa.array([{"a": 1, "b": 2}])}),
}


@pytest.mark.parametrize("name", NESTED_VALUES)
def test_fields_of_fields(name: str, one: DataStream) -> None:
    stream = one.map_batches(lambda batch, name=name: NESTED_VALUES[name](), output_type=NESTED)
    with pytest.raises(JobFailedError, match=r"'MapBatches'.*'(r\.)?b'"):
        list(stream.execute_and_collect())


@dataclass
class Other:
    a: int
    c: int


MISSPELT: dict[str, tuple[Any, Any]] = {
    "tuple": (Types.TUPLE([ROW_AB]), lambda one: (one,)),
    "row": (Types.ROW_NAMED(["r"], [ROW_AB]), lambda one: Row(r=one)),
    "list": (Types.TUPLE([Types.LIST(ROW_AB)]), lambda one: ([one],)),
    "map": (Types.TUPLE([Types.MAP(Types.STRING(), ROW_AB)]), lambda one: ({"k": one},)),
    "single list": (Types.LIST(ROW_AB), lambda one: [one]),
    "top": (ROW_AB, lambda one: one),
}


@pytest.mark.parametrize("value", [{"a": 1, "B": 2}, {"a": 1}, Other(1, 2), Row(a=1, B=2)], ids=str)
@pytest.mark.parametrize("name", MISSPELT)
def test_fields_are_exactly_the_declared_ones_at_any_depth(
    name: str, value: Any, one: DataStream
) -> None:
    kind, around = MISSPELT[name]
    stream = one.map(lambda _: around(value), output_type=kind)
    with pytest.raises(JobFailedError, match=r"'Map', subtask 0: .*(\['a', 'b'\]|\['c'\])"):
        list(stream.execute_and_collect())


@pytest.mark.parametrize("values", [[{"a": 1, "b": 2}], [Wide(1, 2)], table()], ids=str)
def test_collections(values: Any, one: DataStream) -> None:
    env = one.get_execution_environment()
    with pytest.raises(TypeMismatchError, match=EXTRA):
        env.from_collection(values, A)


def test_columns_nobody_declared_are_those_of_the_first_record(one: DataStream) -> None:
    env = one.get_execution_environment()
    stream = env.from_collection([{"a": 1}, {"a": 2, "b": 3}]).select("a")
    with pytest.raises(JobFailedError, match=EXTRA):
        list(stream.execute_and_collect())


def test_a_changelog_keeps_its_kinds(one: DataStream) -> None:
    """Deletions that lose their kind would be insertions."""
    kinds = pa.array([0], pa.int8())
    stream = one.map_batches(
        lambda batch: pa.record_batch({"a": pa.array([1]), "__row_kind": kinds}), output_type=A
    )
    with pytest.raises(JobFailedError, match="__row_kind"):
        list(stream.execute_and_collect())


def test_the_order_of_columns_is_free(one: DataStream) -> None:
    info = Types.ROW_NAMED(["b", "a"], [Types.INT(), Types.INT()])
    for make in (table, lambda batch: [{"a": 1, "b": 2}], lambda batch: [Wide(1, 2)]):
        stream = one.map_batches(make, output_type=info)
        assert list(stream.execute_and_collect()) == [Row("b", "a")(2, 1)]
