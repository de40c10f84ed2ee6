"""What no dict can hold is refused as a key where keys are made: by the exchange and by every
operator that has them in rows, with one and the same sentence."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import strom
from strom.api.specs.records import KeyedProcessSpec, ReduceSpec, RollingSpec
from strom.api.specs.windows import ReduceWindow, WindowSpec
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import JobFailedError, TypeMismatchError
from strom.core.keys import ColumnKey, ExpressionKey, FunctionKey
from strom.engine.exchange.partitioners import make_selector
from strom.engine.graph.model import Custom, KeyGroups
from strom.testing.operator_harness import OperatorHarness


def in_a_list(n: int) -> list[int]:
    return [n]


class Silent(strom.KeyedProcessFunction):
    """Needs its key for nothing."""

    def process_element(self, value, ctx):
        return [value]


OPERATORS = {
    "reduce": lambda key: ReduceSpec(key, lambda a, b: a),
    "sum": lambda key: RollingSpec(key, "sum", 0),
    "max_by": lambda key: RollingSpec(key, "max_by", 0),
    "process": lambda key: KeyedProcessSpec(key, Silent()),
    "window": lambda key: WindowSpec(
        key, TumblingEventTimeWindows.of(5), ReduceWindow(lambda a, b: a)
    ),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_of_a_function(operator):
    harness = OperatorHarness(OPERATORS[operator](FunctionKey(in_a_list)))
    expected = (
        r"^key \[7\] \(list\), made by key_by\(in_a_list\), is not hashable "
        r"\(unhashable type: 'list'\): key by a number, .* tuple of such$"
    )
    with pytest.raises(TypeMismatchError, match=expected):
        harness.push([7], timestamps=[1])


@pytest.mark.parametrize("partitioner", [KeyGroups, lambda key: Custom(lambda k, n: 0, key)])
def test_by_the_exchange(partitioner):
    selector = make_selector(partitioner(FunctionKey(in_a_list)), 2)
    with pytest.raises(TypeMismatchError, match=r"key \[7\] \(list\), made by key_by\(in_a_list\)"):
        selector.split(ObjectBatch([7]))


class Unhashable:
    __hash__ = None


@pytest.mark.parametrize(
    "key",
    [
        [1],
        {1},
        {"a": 1},
        (1, [2]),
        (1, (2.5, [3])),
        bytearray(b"x"),
        Decimal("sNaN"),
        np.arange(2),
        Unhashable(),
        strom.Row(a=[1]),
        list(range(1000)),
    ],
    ids=lambda key: type(key).__name__,
)
def test_kinds_of_them(key):
    selector = FunctionKey(lambda record: record)
    with pytest.raises(TypeMismatchError, match="is not hashable") as caught:
        selector.keys(ObjectBatch([1, key]))
    assert len(str(caught.value)) < 400
    assert selector.keys(ObjectBatch([1, "x", (2.5, None), 1.5])) == [1, "x", (2.5, None), 1.5]


@pytest.mark.parametrize("names", [("k",), ("k", "n")])
def test_of_a_field(names):
    records = ObjectBatch([{"k": {"a": 1}, "n": 2}])
    with pytest.raises(TypeMismatchError, match=r"'a': 1.*made by key_by\(k"):
        ColumnKey(names).keys(records)


@pytest.mark.parametrize("names", [("k",), ("k", "n")])
def test_of_a_column(names):
    """Rows of a column of lists; operators on columns may well be keyed by it."""
    import polars as pl

    records = ColumnBatch(pa.RecordBatch.from_pydict({"k": [[1], [2]], "n": [1, 2]}))
    for key in (ColumnKey(names), ExpressionKey(tuple(pl.col(name) for name in names))):
        with pytest.raises(TypeMismatchError, match=r"key \[1\] \(list\), made by key_by\("):
            key.keys(records)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_job_fails_and_says_so(parallelism):
    settings = strom.JobConfig(parallelism=parallelism)
    env = strom.StreamExecutionEnvironment.get_execution_environment(settings)
    stream = env.from_collection([1, 2, 3]).name("numbers").key_by(in_a_list).sum().name("sum")
    at = "sum" if parallelism == 1 else "numbers"
    with pytest.raises(JobFailedError, match=rf"operator '{at}', subtask \d: .*not hashable"):
        list(stream.execute_and_collect())
