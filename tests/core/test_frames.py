"""Arrow columns as polars frames: every part of an array is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from strom.api.specs.records import MapBatchesSpec
from strom.core.batch import ColumnBatch
from strom.core.errors import TypeMismatchError
from strom.core.frames import frame_of
from strom.core.keys import ExpressionKey
from strom.testing import OperatorHarness

PAIR = pa.list_(pa.int8(), 2)
PAIRS = pa.array([[1, 2], None, [3, None], None, [5, 6]], PAIR)
WHOLE = pa.array([[1, 2], [0, 0], [3, None], [4, 4], [5, 6]], PAIR)


def _deep(part: pa.Array) -> list[pa.Array]:
    lists = pa.ListArray.from_arrays(pa.array(range(len(part) + 1), pa.int32()), part)
    return [part, pa.StructArray.from_arrays([part], names=["pair"]), lists]


@pytest.mark.parametrize("pairs", [PAIRS, WHOLE], ids=["nulls", "none"])
def test_every_part_of_fixed_size_lists(pairs: pa.Array) -> None:
    for start in range(len(pairs)):
        for stop in range(start, len(pairs) + 1):
            for column in _deep(pairs.slice(start, stop - start)):
                data = pa.record_batch({"n": pa.array(range(len(column))), "p": column})
                for given in (data, pa.Table.from_batches([data])):
                    frame = frame_of(given)
                    assert frame.columns == ["n", "p"]
                    assert frame["p"].to_arrow().to_pylist() == column.to_pylist()


def test_fixed_size_lists_in_fixed_size_lists() -> None:
    rows = [[[1, 2], None], None, [[3, 4], [5, 6]]]
    column = pa.array(rows, pa.list_(PAIR, 2))
    for start in range(3):
        data = pa.record_batch({"p": column.slice(start, 1)})
        assert frame_of(data)["p"].to_arrow().to_pylist() == rows[start : start + 1]


@pytest.mark.parametrize("kind", [pa.decimal256(60, 4), pa.list_view(pa.int8())])
def test_a_column_that_polars_has_no_type_for_is_named(kind: pa.DataType) -> None:
    data = pa.record_batch({"n": pa.array([1]), "odd": pa.nulls(1, kind)})
    with pytest.raises(TypeMismatchError, match="the column 'odd' of"):
        frame_of(data)


def test_whole_lists_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(pl, "DataFrame", seen.append)
    for pairs in (PAIRS, WHOLE.slice(1, 2)):
        data = pa.record_batch({"p": pairs})
        frame_of(data)
        assert seen.pop() is data


def test_keys_and_functions_take_parts_of_batches() -> None:
    data = pa.record_batch({"n": pa.array(range(5)), "p": PAIRS}).slice(1, 2)
    batch = ColumnBatch(data, np.zeros(2, np.int64))
    assert ExpressionKey((pl.col("n") % 2,)).keys(batch) == [1, 0]
    operator = OperatorHarness(MapBatchesSpec(lambda frame: frame.select("p"), "polars"))
    operator.push(batch)
    assert [row.p for row in operator.outputs()] == [None, [3, None]]
