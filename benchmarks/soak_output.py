"""What the job of `soak` has published, held against what it had to, row by row and by checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from .soak_job import OUTPUTS, SECOND_MS, Expected, checksum

COLUMNS = ("k", "window_start", "n", "total")


@dataclass(frozen=True)
class Verified:
    """`lost`: rows that are not there; `doubled`: those there more than once, each time beyond the
    first; `wrong`: those that should not be there, or have other numbers. `checksum`: whether
    that of all rows is the one that it had to be."""

    rows: int
    lost: int
    doubled: int
    wrong: int
    checksum: bool

    @property
    def right(self) -> bool:
        return self.checksum and not (self.lost or self.doubled or self.wrong)


def verify(folder: Path, expected: Expected) -> Verified:
    """Reads one published file after the other."""
    times = np.zeros(expected.n.shape, np.int64)
    rows = wrong = found = 0
    for output, name in enumerate(OUTPUTS):
        for keys, seconds, n, total in _published(folder / name):
            rows += len(keys)
            found += checksum(np.full(len(keys), output), seconds, keys, n, total)
            known = _within(expected, seconds, keys)
            at = output, seconds[known], keys[known]
            np.add.at(times, at, 1)
            agree = (expected.n[at] == n[known]) & (expected.total[at] == total[known])
            wrong += len(keys) - int(np.count_nonzero(agree))
    there = expected.n > 0
    return Verified(
        rows,
        lost=int(np.count_nonzero(there & (times == 0))),
        doubled=int((times[there & (times > 1)] - 1).sum()),
        wrong=wrong,
        checksum=found % (1 << 64) == expected.checksum,
    )


def _published(folder: Path) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Keys, seconds, counts and sums of each file."""
    for path in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(path, columns=list(COLUMNS))
        keys, starts, n, total = (table.column(name).cast("int64").to_numpy() for name in COLUMNS)
        yield keys, starts // SECOND_MS, n, total


def _within(expected: Expected, seconds: Any, keys: Any) -> Any:
    """Which rows are of a second and key that there are."""
    _, last, most = expected.n.shape
    return (seconds >= 0) & (seconds < last) & (keys >= 0) & (keys < most)
