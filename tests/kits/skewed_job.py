"""A job most of whose records have keys of a few key groups, which lie side by side: with two
subtasks, and as many groups for each, one of these has five of six records."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from chaos_kit import config, environment, until, within
from leashed_source import PAUSE_MS, LeashedNumbers
from strom.state.key_groups import key_group

COUNT = 30_000
GROUPS = 16
HOT = 6
"""Key groups that have a seventh of the records each, nearly: four of five together."""


def _key_of(group: int) -> str:
    return next(key for n in range(10_000) if key_group(key := f"k{n}", GROUPS) == group)


KEYS = [_key_of(group) for group in range(GROUPS)]


def key_at(n: int) -> str:
    place = n % 30
    return KEYS[place % HOT] if place < 24 else KEYS[HOT + n // 3 % (GROUPS - HOT)]


def numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def counts() -> list[tuple[str, int]]:
    """What has to come out: how many records of its key each was, with those before it."""
    seen = Counter(map(key_at, range(COUNT)))
    return sorted((key, n + 1) for key, most in seen.items() for n in range(most))


class SkewedJob:
    """numbers -> counts of each key -> the client, two subtasks each. It runs until it is
    `finish`ed."""

    def __init__(self, folder: Path, host: str = "local", **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.release = folder / "release"
        made = config(
            folder / "state",
            interval_ms=200,
            max_parallelism=GROUPS,
            batch_size=20,
            metrics_interval=timedelta(milliseconds=100),
            **settings,
        )
        env = environment(made, host)
        source = LeashedNumbers(self.release, PAUSE_MS, numbers, COUNT, splits=2, block=4)
        pairs = env.from_source(source, source_name="numbers").map(lambda n: (key_at(n), 1))
        sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
        self.results: Any = sums.name("sums").uid("sums").execute_and_collect("skewed")
        self.client: Any = self.results.client
        pool = ThreadPoolExecutor(1)
        self.reading: Future[list[Any]] = pool.submit(list, self.results)
        pool.shutdown(wait=False)

    def deals(self, wanted: Any) -> float:
        """The share of its busiest subtask, once it is as it is wanted to be."""

        def share() -> float | None:
            keys = self.client.metrics()["keys"]
            return max(keys[0]["subtasks"]) if keys and wanted(max(keys[0]["subtasks"])) else None

        found: float = until(share, f"another deal, is {self.client.metrics()['keys']}", 60.0)
        return found

    def finish(self) -> Any:
        """Every record has come out, once."""
        self.release.touch()
        values = within(90.0, "the end", self.reading.result)
        assert sorted(values) == counts()
        return self.client.get_job_execution_result()
