"""Random scripts for window operators: batches, watermarks, time, restarts; and running them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from columns_kit import HALVES, WHOLE
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.ids import KeyGroupRange
from strom.core.state_config import StateConfig
from strom.state.key_groups import key_groups_of
from strom.testing.operator_harness import OperatorHarness, regroup

FIRST_MARK = -30
"""Where watermarks start."""


@dataclass(frozen=True)
class Push:
    """A batch of records."""

    rows: list[Any]


@dataclass(frozen=True)
class Mark:
    """A watermark so much greater than the last."""

    by: int


@dataclass(frozen=True)
class Tick:
    """The clock goes on by so much."""

    by: int


@dataclass(frozen=True)
class Restart:
    """From a snapshot."""


Step = Push | Mark | Tick | Restart


def scripts(rows: SearchStrategy[Any]) -> SearchStrategy[list[Step]]:
    """Scripts over such records."""
    step: SearchStrategy[Any] = (
        st.builds(Push, st.lists(rows, min_size=1, max_size=6))
        | st.builds(Mark, st.integers(0, 15))
        | st.builds(Tick, st.integers(0, 15))
        | st.just(Restart())
    )
    return st.lists(step, min_size=2, max_size=12)


def singly(script: Sequence[Step]) -> list[Step]:
    """The same with one record per batch."""
    return [
        part
        for step in script
        for part in ([Push([row]) for row in step.rows] if isinstance(step, Push) else [step])
    ]


def without_restarts(script: Sequence[Step]) -> list[Step]:
    return [step for step in script if not isinstance(step, Restart)]


@dataclass(frozen=True)
class Found:
    """What came out at one step: results with their event times, schemas, late records. What time
    brings out is in no particular order, and sorted here."""

    step: str
    results: list[str]
    schemas: set[str]
    late: list[str]


def run(
    make: Callable[[], Any],
    batch: Callable[[Any], ColumnBatch],
    script: Sequence[Step],
    start: int = 0,
    states: Sequence[StateConfig] = (StateConfig(),),
) -> tuple[list[Found], list[str]]:
    """Each step, also the input's end; and the names of the states that hold something after it.

    `make` makes the operator, whose invariants hold after each step; `batch`, of records. `states`:
    where its state lies, from one restart to the next in turn."""
    configs = itertools.cycle([JobConfig(state=state) for state in states])
    harness = OperatorHarness(make(), config=next(configs), start_ms=start)
    found, attempt = [], 0
    for step in [*script, None]:
        if isinstance(step, Restart):
            attempt += 1
            mark, snapshot = harness.output.watermark, harness.snapshot()
            harness.close()
            of: Any = {"config": next(configs), "restored": snapshot, "attempt": attempt}
            harness = OperatorHarness(make(), **of)
            harness.output.watermark = mark
        elif step is None:
            harness.finish()
        else:
            drive(harness, batch, [step])
        check = getattr(harness.operator, "validate", None)
        if check is not None:
            check()
        results = [repr((tuple(row), at)) for row, at in harness.stamped_outputs()]
        if not isinstance(step, Push):
            results.sort()
        schemas = {str(b.data.schema) for b in harness.batches()}
        late = [repr(tuple(row)) for row in harness.side_outputs("late")]
        found.append(Found(type(step).__name__, results, schemas, late))
        harness.output.elements.clear()
        harness.output.side.clear()
    held = [table for table in harness.snapshot().keyed if table.name != "progress"]
    harness.close()
    return found, [table.name for table in held if len(table.data)]


def drive(
    harness: OperatorHarness,
    batch: Callable[[Any], ColumnBatch],
    script: Sequence[Step],
    groups: KeyGroupRange | None = None,
) -> None:
    """`groups`: only records whose key "k" belongs to them."""
    for step in script:
        match step:
            case Push(rows):
                data = batch(rows)
                if groups is not None:
                    owners = key_groups_of(data.data.select(["k"]), 128).tolist()
                    data = data.take(np.flatnonzero([group in groups for group in owners]))
                harness.push(data)
            case Mark(by):
                harness.watermark(max(harness.output.watermark, FIRST_MARK) + by)
            case Tick(by):
                harness.advance_processing_time(harness.clock.now_ms() + by)


def rescaled(
    make: Callable[[], Any],
    batch: Callable[[Any], ColumnBatch],
    before: Sequence[Step],
    between: Sequence[Step],
    after: Sequence[Step],
) -> list[OperatorHarness]:
    """One subtask, then two with half of the key groups each, then one again, to the input's end:
    all four."""
    one = OperatorHarness(make())
    drive(one, batch, before)
    halves = []
    for groups in HALVES:
        part = regroup([one.snapshot()], groups)
        half = OperatorHarness(make(), key_groups=groups, restored=part)
        half.output.watermark = one.output.watermark
        drive(half, batch, between, groups)
        halves.append(half)
    whole = regroup([half.snapshot() for half in halves], WHOLE)
    joined = OperatorHarness(make(), restored=whole)
    joined.output.watermark = halves[0].output.watermark
    drive(joined, batch, after)
    joined.finish()
    return [one, *halves, joined]
