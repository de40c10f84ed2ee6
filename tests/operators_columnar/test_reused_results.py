"""Functions of batches that fill what they return again: earlier results stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from strom import ColumnBatch, StreamExecutionEnvironment, Types
from strom.testing.operator_harness import OperatorHarness

NUMBERS = Types.ROW_NAMED(["n"], [Types.LONG()])


class Reuses:
    """Returns the same array, frame or list each time."""

    def __init__(self) -> None:
        self.array = np.zeros(2, dtype=np.int64)
        self.frame = pd.DataFrame({"n": self.array.copy()})
        self.list: list[Any] = []

    def arrays(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.array[:] = batch["n"]
        return {"n": self.array}

    def frames(self, batch: dict[str, Any]) -> pd.DataFrame:
        self.frame.loc[:, "n"] = batch["n"]
        return self.frame

    def lists(self, batch: dict[str, Any]) -> list[Any]:
        self.list[:] = [(int(n),) for n in batch["n"]]
        return self.list


@pytest.mark.parametrize("kind", ["arrays", "frames", "lists"])
def test_earlier_results_stay(kind: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([(1,)], NUMBERS).map_batches(getattr(Reuses(), kind), "numpy")
    run = OperatorHarness.of(stream)
    for at in (0, 2, 4):
        run.push(ColumnBatch(pa.record_batch({"n": [at, at + 1]})))
    assert [tuple(row) for row in run.outputs()] == [(n,) for n in range(6)]


def test_columns_that_pass_through_are_not_copied() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    run = OperatorHarness.of(env.from_collection([(1,)], NUMBERS).map_batches(same, "numpy"))
    data = pa.record_batch({"n": list(range(1000))})
    run.push(ColumnBatch(data))
    (batch,) = run.batches()
    assert isinstance(batch, ColumnBatch)
    assert batch.data["n"].buffers()[1].address == data["n"].buffers()[1].address


def same(batch: dict[str, Any]) -> dict[str, Any]:
    return batch
