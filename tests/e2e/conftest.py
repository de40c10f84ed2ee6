"""The input that most pipelines here read: four lanes of readings, in no order of time.

lane 0   k00 k01 k02 k00 ...      every key lives in one lane, so the order of a key's records, and
lane 1   k10 k11 k12 k10 ...      with it every running result, is the same in every run
...
time     10 ms from one to the next, up to 30 ms early or late: never late for SLACK
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from amounts import records
from strom import DataStream, Row, StreamExecutionEnvironment, WatermarkStrategy
from strom.testing.scripted import ScriptedSource

LANES = 4
LENGTH = records(40)
SLACK_MS = 60

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.int64()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("ts", pa.int64()),
    ]
)

STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(SLACK_MS).with_timestamp_assigner("ts")


@pytest.fixture(autouse=True)
def row_windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test's `path` is "rows", windows are run by the operator for what has no kernels."""
    drawn = getattr(request.node, "callspec", None)
    if drawn is not None and drawn.params.get("path") == "rows":
        monkeypatch.setattr("strom.plan.windows._form", lambda spec: None)


@pytest.fixture(autouse=True)
def functions_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions run on columns from two records on, so that of most pipelines some batches do and
    some do not."""
    monkeypatch.setattr("strom.core.compiled.tried.LEAST", 2)


@dataclass
class Readings:
    """Fields: k the key, g a group across lanes, v a number, x a multiple of 1/4 (sums of it are
    exact in any order), ts event time in ms."""

    lanes: list[list[Row]]

    @property
    def all(self) -> list[Row]:
        """Lane by lane, each in order."""
        return [reading for lane in self.lanes for reading in lane]

    def rows(self, env: StreamExecutionEnvironment) -> DataStream:
        """As objects."""
        return env.from_source(ScriptedSource(self.lanes), STRATEGY, "readings")

    def columns(self, env: StreamExecutionEnvironment) -> DataStream:
        """As columns."""
        return env.from_source(ScriptedSource(self.lanes, SCHEMA), STRATEGY, "readings")

    def stream(self, env: StreamExecutionEnvironment, kind: str) -> DataStream:
        return self.rows(env) if kind == "rows" else self.columns(env)


def make_lane(lane: int) -> list[Row]:
    rng = random.Random(lane)
    return [
        Row("k", "g", "v", "x", "ts")(
            f"k{lane}{i % 3}",
            rng.randrange(5),
            rng.randrange(1000),
            rng.randrange(400) / 4,
            1000 + 10 * i + rng.randrange(-30, 31),
        )
        for i in range(LENGTH)
    ]


@pytest.fixture(scope="session")
def readings() -> Readings:
    return Readings([make_lane(lane) for lane in range(LANES)])


@pytest.fixture(params=["rows", "columns"])
def kind(request: pytest.FixtureRequest) -> Any:
    """Readings as objects, and as columns."""
    return request.param
