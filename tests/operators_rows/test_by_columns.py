"""Map and filter give the same with functions on columns and without, to the last bit and error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from letters_kit import DEAD
from strom import (
    FilterFunction,
    JobConfig,
    MapFunction,
    Row,
    TumblingEventTimeWindows,
    Types,
    count,
    dead_letters,
    sum_,
)
from strom.api.specs.records import FilterSpec, MapSpec
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.types.declared import declared_records
from strom.core.batch import ColumnBatch
from strom.core.keys import FunctionKey
from strom.testing.fuzz.functions import run_functions, told
from strom.testing.operator_harness import OperatorHarness

ON, OFF = JobConfig(), JobConfig(compile_functions=False)
LEAST = 64


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried on columns from so many records on."""
    monkeypatch.setattr("strom.core.compiled.tried.LEAST", LEAST)


def records(count: int = LEAST, start: int = 0) -> ColumnBatch:
    numbers = np.arange(start, start + count)
    data = pa.record_batch(
        {"n": numbers, "x": numbers / 4, "s": [f"k{one % 5}" for one in numbers]}
    )
    return ColumnBatch(data, numbers)


def opened(spec: Any, config: JobConfig = ON) -> Any:
    return OperatorHarness(spec, config=config)


def runs_on_columns(harness: Any) -> bool | None:
    by_columns = harness.operator.by_columns
    return None if by_columns is None else by_columns.reads


@settings(max_examples=examples(1_500), deadline=None)
@given(st.integers(0, 2**32))
def test_random_functions_give_the_same(seed: int) -> None:
    run_functions(seed)


def test_most_of_what_is_drawn_runs_on_columns() -> None:
    assert sum(run_functions(seed) for seed in range(100)) > 30


LIMIT = 10


def test_what_the_function_reads_elsewhere_is_looked_at_before_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = 1

    class Adds(MapFunction):
        by = 100

        def map(self, value: Any) -> Any:
            return value.n + LIMIT + step + self.by

    function = Adds()
    harness = opened(MapSpec(function))

    def first() -> int:
        harness.push(records())
        return int(harness.take_outputs()[0])

    assert first() == 111
    monkeypatch.setitem(globals(), "LIMIT", 20)
    assert first() == 121
    step = 2
    assert first() == 122
    function.by = 200  # type: ignore[misc]
    assert first() == 222
    monkeypatch.setattr(Adds, "map", lambda self, value: value.n)
    assert first() == 222, "the operator holds the method that it was opened with"
    assert runs_on_columns(harness)
    monkeypatch.setitem(globals(), "LIMIT", [])
    with pytest.raises(TypeError, match="list"):
        first()


def test_a_function_of_other_code_is_another_function() -> None:
    def function(row: Any) -> Any:
        return row.n

    harness = opened(MapSpec(function))
    harness.push(records())
    function.__code__ = (lambda row: row.s).__code__
    harness.push(records())
    outputs = harness.outputs()
    assert (outputs[0], outputs[LEAST]) == (0, "k0")


def test_attributes_may_come_with_open() -> None:
    class Above(FilterFunction):
        def open(self, runtime_context: Any) -> None:
            self.limit = 60

        def filter(self, value: Any) -> bool:
            return value.n >= self.limit  # type: ignore[no-any-return]

    harness = opened(FilterSpec(Above()))
    harness.push(records())
    assert [row.n for row in harness.outputs()] == [60, 61, 62, 63]
    assert runs_on_columns(harness)


def test_what_has_effects_is_called_for_each_record() -> None:
    seen: list[int] = []

    class Counts(MapFunction):
        calls = 0

        def map(self, value: Any) -> Any:
            self.calls += 1
            return value.n

    class Described(MapFunction):
        calls = 0

        @property
        def step(self) -> int:
            Described.calls += 1
            return 1

        def map(self, value: Any) -> Any:
            return value.n + self.step

    counts, described = Counts(), Described()
    for function in (lambda row: seen.append(row.n), counts, described):
        harness = opened(MapSpec(function))
        harness.push(records())
        assert runs_on_columns(harness) is False
    assert (len(seen), counts.calls, Described.calls) == (LEAST, LEAST, LEAST)


def test_small_batches_and_rows_that_somebody_has_had_go_by_rows() -> None:
    harness = opened(MapSpec(lambda row: row.n))
    harness.push(records(LEAST - 1))
    assert runs_on_columns(harness) is None
    batch = records()
    batch.rows()[0]["n"] = -5
    harness.push(batch)
    assert runs_on_columns(harness) is None
    assert harness.outputs()[LEAST - 1] == -5


def test_batches_that_columns_cannot_do_go_by_rows() -> None:
    """Each by itself; behind several in a row most are not tried."""
    harness = opened(MapSpec(lambda row: row.n * 2**40))
    wanted = []
    for at in range(40):
        batch = records(start=2**40 if at % 3 else 0)
        harness.push(batch)
        wanted += [row.n * 2**40 for row in batch.rows()]
    assert harness.outputs() == wanted
    assert runs_on_columns(harness)


def test_a_record_that_raises_is_a_letter_and_the_others_go_on() -> None:
    spec = MapSpec(lambda row: 10 // (row.n - 5), on_error=dead_letters(limit=3))
    harness = opened(spec)
    harness.push(records())
    assert len(harness.outputs()) == LEAST - 1
    assert [letter.error for letter in harness.side_outputs(DEAD)] == ["ZeroDivisionError"]


def test_a_predicate_may_give_anything() -> None:
    harness = opened(FilterSpec(lambda row: row.n % 2 and row.s))
    harness.push(records())
    assert [row.n for row in harness.outputs()] == list(range(1, LEAST, 2))
    assert runs_on_columns(harness)


def test_rows_of_names_are_columns_by_name() -> None:
    declared = declared_records(Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.LONG()]))
    harness = opened(MapSpec(lambda row: Row(a=row.n, b=row.s), declared))
    harness.push(records())
    (batch,) = harness.batches()
    assert batch.data.column_names == ["b", "a"]
    assert batch.data.column(1).to_pylist() == list(range(LEAST))
    assert runs_on_columns(harness)


def test_it_can_be_switched_off() -> None:
    harness = opened(MapSpec(lambda row: row.n), OFF)
    harness.push(records())
    assert harness.outputs() == list(range(LEAST))
    assert runs_on_columns(harness) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda row: row.s,
        lambda row: (row.n % 3, row.n % 2),
        lambda row: row.x // 4,
        lambda row: row.n if row.n % 3 else None,
        lambda row: row.n % 2 == 0,
    ],
)
def test_windows_by_a_function_are_the_same(function: Any) -> None:
    aggregates = BuiltinWindow((("n", count()), ("total", sum_("n"))))
    spec = WindowSpec(FunctionKey(function), TumblingEventTimeWindows.of(50), aggregates)
    found = []
    for config in (ON, OFF):
        harness = opened(spec, config)
        for start in (0, 40):
            batch = records(start=start)
            harness.push(batch)
            assert batch.has_rows is (config is OFF)
        harness.watermark(1_000)
        found.append([told(one) for one in harness.batches()])
    assert found[0] == found[1]
    assert found[0]


def test_a_stream_of_several_schemas() -> None:
    """The function is read once for each of a few; batches of any others go by rows."""
    harness = opened(MapSpec(lambda row: row.n + 1))
    kinds = [pa.int64(), pa.int32(), pa.int16(), pa.float64(), pa.uint32()]
    for kind in (*kinds, *kinds):
        data = records().data.select(["n", "s"])
        column = data.column("n").cast(kind)
        harness.push(ColumnBatch(data.set_column(0, "n", column)))
        assert set(map(type, harness.take_outputs())) == {float if kind == pa.float64() else int}
    assert runs_on_columns(harness)
