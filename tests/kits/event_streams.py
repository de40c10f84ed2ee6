"""Random streams with event times, none of them late, as batches, watermarks and restores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

SLACK = 8
"""How far records are out of order at most."""


def times(rng: random.Random, count: int, ttl: int) -> list[int]:
    """Event times a little out of order, with gaps shorter and longer than a time to live."""
    now, found = 1000, []
    for _ in range(count):
        now += rng.choice([0, 1, 2, ttl // 3, ttl // 3, ttl, 2 * ttl])
        found.append(now - rng.randrange(SLACK))
    return found


def steps(rng: random.Random, stamps: list[int]) -> Iterator[tuple[str, Any]]:
    """("rows", slice), ("watermark", time) and ("restore", None): whatever the seed, no record is
    late."""
    start, latest, passed = 0, 0, 0
    while start < len(stamps):
        stop = start + rng.choice([1, 2, 5, 30])
        yield "rows", slice(start, stop)
        start, latest = stop, max(latest, *stamps[start:stop])
        if rng.random() < 0.4 and start < len(stamps):
            ahead = min(stamps[start:])
            passed = max(passed, min(latest, ahead) - 1 - rng.choice([0, 0, 5]))
            yield "watermark", passed
        if rng.random() < 0.2:
            yield "restore", None
