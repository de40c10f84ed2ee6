"""Columns stay columns: a job on kernels runs no Python for each record.

The lines of Python that a whole job executes are counted, in all its threads. That number is the
same on every machine, however busy. A loop over records, were it in a comprehension, a generator or
a function that `map` calls, executes at least one line for each; work done once a batch is a few
lines per hundred records.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import guard_kit
import pytest

EVENTS = 262_144
LIMIT = 0.6
"""Lines per record. Measured: 0.10 to 0.14, and 0.31 for q5, which fires a window every 20,000."""


class Lines:
    """Counts lines that are executed, over all threads started meanwhile and this one."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        self.count += event == "line"
        return self.trace


@contextmanager
def counted() -> Iterator[Lines]:
    lines, before = Lines(), sys.gettrace()
    threads_before = threading.gettrace()
    threading.settrace(lines.trace)
    sys.settrace(lines.trace)
    try:
        yield lines
    finally:
        sys.settrace(before)
        threading.settrace(threads_before)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", guard_kit.JOBS)
def test_no_python_for_each_record(name: str) -> None:
    job, make = guard_kit.JOBS[name]
    batches = make(EVENTS)
    guard_kit.run(job, batches)  # imports what it needs
    with counted() as lines:
        guard_kit.run(job, batches)
    per_record = lines.count / sum(map(len, batches))
    print(f"{name}: {lines.count} lines, {per_record:.3f} a record")
    assert lines.count > 100 * len(batches), "nothing was counted"
    assert per_record <= LIMIT, (
        f"{name}: {per_record:.2f} lines of Python were executed for each record, at most {LIMIT} "
        "are wanted"
    )


def one_more(value: int) -> int:
    return value + 1


LOOPS: dict[str, Callable[[list[int]], Any]] = {
    "comprehension": lambda values: [value + 1 for value in values],
    "generator": lambda values: sum(value + 1 for value in values),
    "map": lambda values: list(map(one_more, values)),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_loop_over_records_is_seen(loop: Callable[[list[int]], Any]) -> None:
    """The guard's own guard."""
    job, make = guard_kit.JOBS["kstate"]

    def looped(batch: Any) -> Any:
        loop(batch.column("v").to_pylist())
        return batch

    with counted() as lines:
        guard_kit.run(lambda stream: job(stream.map_batches(looped)), make(EVENTS))
    assert lines.count > EVENTS
