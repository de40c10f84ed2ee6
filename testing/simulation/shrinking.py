"""A shorter case that fails as well: less of everything, as long as something goes wrong.

Each field is tried with smaller values, those that say most about a cause first; a smaller case has
another schedule, so some seeds are tried with each. What is left at the end is short, not shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .case import Case

SEEDS = 6
"""So many schedules are tried with each smaller case."""

Failure = Callable[[Case], str | None]
"""Why a case fails; None: it does not."""


def shrunk(case: Case, failure: Failure, tries: int = 400) -> Case:
    """The shortest case found within so many runs. `case` itself if none is shorter."""
    left = tries
    again = True
    while again and left > 0:
        again = False
        for smaller in smaller_cases(case):
            found = None
            for seed in dict.fromkeys([case.seed, *range(SEEDS)]):
                if left <= 0:
                    break
                left -= 1
                one = replace(smaller, seed=seed)
                if failure(one) is not None:
                    found = one
                    break
            if found is not None:
                case, again = found, True
                break
    return case


def smaller_cases(case: Case) -> Iterator[Case]:
    """Each with one thing less, the largest steps first."""
    for name, plain in _OFF.items():
        if getattr(case, name) != plain:
            yield _with(case, name, plain)
    if len(case.parallelism) > 1:
        yield replace(case, parallelism=case.parallelism[:1])
    for place, parallelism in enumerate(case.parallelism):
        for less in range(1, parallelism):
            ways = [*case.parallelism]
            ways[place] = less
            yield replace(case, parallelism=tuple(ways))
    for name in (
        "crashes",
        "coordinators",
        "after",
        "savepoints",
        "cut_offs",
        "late",
        "partitions",
        "stop",
    ):
        value = getattr(case, name)
        least = 1 if name == "stop" else 0
        yield from (_with(case, name, less) for less in range(least, value))
    for name, values in _LESS.items():
        now: Any = getattr(case, name)
        yield from (_with(case, name, less) for less in values if now in (0, None) or less < now)


_NUMBERS = (
    "crashes", "coordinators", "after", "savepoints", "cut_offs", "late", "partitions", "stop",
)  # fmt: skip


def _with(case: Case, name: str, value: Any) -> Case:
    return replace(case, **{name: value})


_OFF: dict[str, Any] = {
    "live": 0,
    "deals": 0,
    "own": 0,
    "looks": Case.looks,
    "short": 0,
    "at_stop": 0,
    "failing": 0,
    "hangs": 0,
    "partitions": 0,
    "cut_offs": 0,
    "late": 0,
    "away": 0,
    "commits": 0,
    "figures": False,
    "refused": 0,
    "limit": "none",
    "sink": "collect",
    "slow_tasks": 0,
    "slow_work": 0,
    "backend": "memory",
    "storage": "files",
    "retained": 1,
    "at_once": 1,
    "full_every": None,
    "mode": "aligned",
    "cramped": False,
    "ends": "itself",
}
"""What is left out if it can be."""

_LESS: dict[str, tuple[int, ...]] = {
    "records": (2, 4, 8, 16),
    "choices": (0, 10, 30, 100, 300),
}
