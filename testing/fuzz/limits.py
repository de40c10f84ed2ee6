"""Small limits: what operators do at their thousandth row they do at their third.

Buffers are compacted, tables rebuilt and values forgotten when they have grown past limits that
short inputs never reach. `small_limits` sets those limits to a few for the time of a run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

LIMITS: dict[str, dict[str, int]] = {
    "core.compiled.tried": {"LEAST": 1},
    "operators.windows.compacting_buffer": {"FIRST_COMPACTION": 2},
    "state.value_store": {"FIRST_LIMIT": 2},
    "state.slot_table": {"SPARE": 1},
    "operators.combining.worth": {"MOST_HELD": 3},
    "operators.aggregates.best_rows": {"FEW": 1},
    "operators.aggregates.best": {"GREATEST_FLAT": 1},
    "operators.tables.all_rows": {"_SPARE": 1},
    "operators.tables.frame_history": {"_SPARE": 1},
    "operators.tables.runs": {"_SPARE": 1},
    "state.live_keys": {"FIRST_LIMIT": 2},
    "operators.tables.top_n": {"_SCRATCH": 4},
    "state.rows.texts": {"_SPARE": 1},
    "state.seen_pairs": {"FIRST": 16},
}
"""Module of the package -> name -> value."""

_PACKAGE = __package__.removesuffix("testing.fuzz")


def known_limits() -> Iterator[tuple[Any, str, int]]:
    """Module, name and value of each of `LIMITS` that is there."""
    for name, limits in LIMITS.items():
        import_module(_PACKAGE + name)
        module = sys.modules[_PACKAGE + name]
        for limit, value in limits.items():
            if hasattr(module, limit):
                yield module, limit, value


@contextmanager
def small_limits(wanted: bool = True) -> Iterator[None]:
    """While this is open, if wanted."""
    former: list[tuple[Any, str, int]] = []
    for module, limit, value in known_limits() if wanted else ():
        former.append((module, limit, getattr(module, limit)))
        setattr(module, limit, value)
    try:
        yield
    finally:
        for module, limit, number in former:
            setattr(module, limit, number)
