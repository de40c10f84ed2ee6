"""Records for an operator that puts some aside, and what it has put there."""

from __future__ import annotations

from typing import Any

import strom
from strom.testing.operator_harness import OperatorHarness

DEAD = "__dead_letters"

RECORDS = 80
"""Of each job."""

MOST = RECORDS // 10 * 2
"""Letters of the operators that have most: with any counted twice the job fails."""


def pushed(stream: Any, *records: Any, stamps: list[int] | None = None, **more: Any) -> Any:
    harness = OperatorHarness.of(stream, **more)
    harness.push(list(records), timestamps=stamps)
    return harness


def letters(harness: Any) -> list[Any]:
    return [(letter.error, letter.record) for letter in harness.side_outputs(DEAD)]


def source() -> Any:
    return strom.StreamExecutionEnvironment.get_execution_environment().from_collection([1])
