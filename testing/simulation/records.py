"""The records that simulated jobs read: few, of few keys, drawn once per variant."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from ..scripted import Pause

Record = tuple[int, int, int]
"""Key, value, event time (ms)."""

DISORDER: Final = 20
"""A record is at most so much (ms) older than the newest one before it in its lane."""

VARIANTS: Final = 12
"""So many sets of records there are; each is a few graphs, which are kept."""


@dataclass(frozen=True)
class Data:
    """Lanes of two sources, and of rules that are broadcast: records, and pauses between them. A
    key is in one lane only of each source."""

    first: list[list[Any]]
    second: list[list[Any]]
    rules: list[list[Any]]

    @cached_property
    def records(self) -> list[Record]:
        return _records(self.first)

    @cached_property
    def others(self) -> list[Record]:
        return _records(self.second)


def _records(lanes: list[list[Any]]) -> list[Record]:
    return [r for lane in lanes for r in lane if isinstance(r, tuple)]


@lru_cache(maxsize=1000)
def data_of(variant: int, limit: int = 0) -> Data:
    """The records of a variant; `limit`: at most so many of each source's, 0: all."""
    rng = random.Random(variant)
    lanes, pausing = rng.choice((1, 2, 3)), rng.random() < 0.5
    first = _lanes(rng, lanes, rng.randint(6, 30), pausing)
    second = _lanes(rng, rng.choice((1, 2)), rng.randint(3, 14), rng.random() < 0.3)
    rules = [[(0, n, 15 * n) for n in range(rng.randint(1, 4))]]
    if pausing:
        rules[0].insert(1, Pause(rng.randint(1, 6)))  # type: ignore[arg-type]
    if limit:
        first, second, rules = (_cut(lanes, limit) for lanes in (first, second, rules))
    return Data(first, second, rules)


def _lanes(rng: random.Random, lanes: int, records: int, pausing: bool) -> list[list[Any]]:
    """Some keys have many more records than others."""
    made: list[list[Any]] = []
    for lane in range(lanes):
        keys = [lanes * key + lane for key in range(rng.randint(1, 4))]
        times = sorted(rng.randrange(240) for _ in range(records // lanes + 1))
        times.sort(key=lambda t: t + rng.randrange(DISORDER + 1))
        found: list[Any] = [
            (keys[int(len(keys) * rng.random() ** 2)], rng.randrange(50), t) for t in times
        ]
        if pausing:
            found.insert(rng.randrange(len(found)), Pause(rng.randint(1, 8)))
        made.append(found)
    return made


def _cut(lanes: list[list[Any]], limit: int) -> list[list[Any]]:
    """About the first `limit` records, some of each lane."""
    each = max(1, limit // len(lanes))
    made = []
    for lane in lanes:
        places = [at for at, r in enumerate(lane) if isinstance(r, tuple)]
        made.append(lane[: places[each]] if len(places) > each else lane)
    return made
