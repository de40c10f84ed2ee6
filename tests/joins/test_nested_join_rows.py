"""Joins of rows with lists, structs and extension types, by keys that are floats, decimals and
times: with RocksDB they give what they give in memory, through restores into the other backend."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom import DataStream, StreamExecutionEnvironment
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.row_kind import with_kinds
from strom.core.state_config import StateConfig
from strom.core.value_types import BigDecimal
from strom.testing.backends import spilling
from strom.testing.fuzz.comparing import plain
from strom.testing.operator_harness import OperatorHarness

AMOUNT = pa.decimal128(6, 2)
KEY = [("x", pa.float32()), ("at", pa.timestamp("us", "UTC")), ("d", AMOUNT)]
LEFT = pa.schema([*KEY, ("l", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])))])
RIGHT = pa.schema([*KEY, ("s", pa.struct([("f", pa.list_(pa.float64()))])), ("b", BigDecimal())])
SCHEMAS = (LEFT, RIGHT)
NAMES = [name for name, _ in KEY]
NAN = float("nan")
TIMES = [None, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC)]
KEYS = [
    (x, at, d)
    for x in (0.0, -0.0, NAN, 1.5)
    for at in TIMES
    for d in (Decimal("1.5"), Decimal("-0.00"))
]


def sides() -> tuple[Any, Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by(*NAMES) for _ in range(2))
    return left, right


TYPES: dict[str, Any] = {"left_type": LEFT, "right_type": RIGHT}


def regular(how: str) -> DataStream:
    left, right = sides()
    return left.join(right, how, **TYPES)


def temporal(how: str) -> DataStream:
    left, right = sides()
    return left.temporal_join(right, how, **TYPES)


def interval(how: str) -> DataStream:
    left, right = sides()
    return left.interval_join(right, -30, 20, how, **TYPES)


def windowed(how: str) -> DataStream:
    left, right = sides()
    return left.window_join(right, TumblingEventTimeWindows.of(40), how, **TYPES)


def payload(port: int, n: int) -> list[Any]:
    if port == 0:
        return [None if n % 5 == 0 else [{"a": n % 100, "b": f"{n}"}, None] * (n % 3)]
    floats: Any = [[], [NAN, -0.0], [None], None][n % 4]
    return [None if n % 7 == 0 else {"f": floats}, None if n % 3 == 0 else str(Decimal(n) / 10)]


def batch(port: int, rows: list[tuple[Any, int, int]], kinds: Any = None) -> ColumnBatch:
    """Of key, number and time."""
    columns = zip(*[[*key, *payload(port, n)] for key, n, _ in rows], strict=True)
    arrays = []
    for values, kind in zip(columns, SCHEMAS[port].types, strict=True):
        if isinstance(kind, BigDecimal):
            arrays.append(pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type)))
        else:
            arrays.append(pa.array(values, kind))
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[port])
    if kinds is not None:
        data = with_kinds(data, np.asarray(kinds, np.int8))
    return ColumnBatch(data, np.array([at for _, _, at in rows], np.int64))


def made(stream: DataStream, state: StateConfig, restored: Any = None) -> OperatorHarness:
    config = JobConfig(max_parallelism=8, state=state)
    return OperatorHarness.of(stream, config=config, max_parallelism=8, restored=restored)


def taken(harness: OperatorHarness) -> Counter[Any]:
    found = Counter(plain(tuple(row)) for row in harness.outputs())
    harness.output.elements.clear()
    return found


CASES: list[tuple[Callable[[str], DataStream], str]] = [
    *((regular, how) for how in ("inner", "left", "full", "anti")),
    *((temporal, how) for how in ("inner", "left")),
    *((interval, how) for how in ("inner", "full")),
    *((windowed, how) for how in ("inner", "full")),
]


@pytest.mark.parametrize(("join", "how"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_as_in_memory(join: Callable[[str], DataStream], how: str) -> None:
    rng = random.Random(f"{join.__name__} {how}")
    stream, states = join(how), [StateConfig(), spilling(8)]
    both = [made(stream, state) for state in states]
    held: list[tuple[Any, int, int]] = []
    now, number, spilled = 0, 0, 0.0
    for _ in range(60):
        now += rng.randrange(6)
        match rng.choice(["rows", "rows", "rows", "mark", "back", "restore"]):
            case "rows":
                port, rows = rng.randrange(2), []
                for _ in range(rng.randrange(1, 9)):
                    number += 1
                    rows.append((rng.choice(KEYS), number, now + rng.randrange(10)))
                if port == 0:
                    held += rows
                for one in both:
                    one.push(batch(port, rows), port=port)
            case "back":
                if join is not regular or not held:
                    continue
                row = held.pop(rng.randrange(len(held)))
                for one in both:
                    one.push(batch(0, [row], [3]), port=0)
            case "mark":
                for one in both:
                    one.watermark(now - 5)
            case "restore":
                spilled += _spilled(both)
                snapshots = [one.snapshot() for one in both]
                assert taken(both[0]) == taken(both[1])
                for one in both:
                    one.close()
                states.reverse()
                both = [
                    made(stream, state, snapshot)
                    for state, snapshot in zip(states, snapshots, strict=True)
                ]
    spilled += _spilled(both)
    for one in both:
        one.finish(2)
    first, second = map(taken, both)
    assert first == second
    assert spilled > 50, "rows have left memory"
    for one in both:
        one.close()


def _spilled(both: list[OperatorHarness]) -> float:
    told: dict[str, float] = {}
    for one in both:
        one.keyed_state.report(lambda name, n: told.__setitem__(name, told.get(name, 0) + n))
    return told.get("state.entries.spilled", 0)
