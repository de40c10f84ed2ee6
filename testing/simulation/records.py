"""The records that simulated jobs read: few, of few keys, drawn once per variant."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

from ..scripted import Pause

Record = tuple[int, int, int]
"""Key, value, event time (ms)."""

Limit = Literal["none", "exact", "short"]
"""How many records of each source may be put aside, as its operator is told: any number, as many as
there are, or one less, and then the job fails."""

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
        """Without those that are refused."""
        return _records(self.first)

    @cached_property
    def others(self) -> list[Record]:
        return _records(self.second)


def _records(lanes: list[list[Any]]) -> list[Record]:
    return [r for lane in lanes for r in lane if isinstance(r, tuple) and r[1] >= 0]


def refused_of(lanes: list[list[Any]]) -> list[Record]:
    """Those for which functions raise: their values are below 0, and no two are the same."""
    return [r for lane in lanes for r in lane if isinstance(r, tuple) and r[1] < 0]


@lru_cache(maxsize=1000)
def data_of(variant: int, limit: int = 0, refused: int = 0) -> Data:
    """The records of a variant; `limit`: at most so many of each source's, 0: all. `refused`: of a
    hundred records so many have one beside them that is refused."""
    rng = random.Random(variant)
    lanes, pausing = rng.choice((1, 2, 3)), rng.random() < 0.5
    first = _lanes(rng, lanes, rng.randint(6, 30), pausing)
    second = _lanes(rng, rng.choice((1, 2)), rng.randint(3, 14), rng.random() < 0.3)
    rules = [[(0, n, 15 * n) for n in range(rng.randint(1, 4))]]
    if pausing:
        rules[0].insert(1, Pause(rng.randint(1, 6)))  # type: ignore[arg-type]
    if limit:
        first, second, rules = (_cut(lanes, limit) for lanes in (first, second, rules))
    if refused:
        more = random.Random(variant)
        first, second = (_with_refused(more, lanes, refused) for lanes in (first, second))
    return Data(first, second, rules)


def _with_refused(rng: random.Random, lanes: list[list[Any]], share: int) -> list[list[Any]]:
    """At any place, and of the time of the record there."""
    count = 0
    made: list[list[Any]] = []
    for lane in lanes:
        found: list[Any] = []
        for item in lane:
            found.append(item)
            if isinstance(item, tuple) and rng.randrange(100) < share:
                count += 1
                found.insert(len(found) - rng.randrange(2), (item[0], -count, item[2]))
        made.append(found)
    return made


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
