"""How the records of a keyed edge are distributed over key groups, and which keys have most.

Measured at the sender, which has the keys at hand, on samples: of about one batch in EVERY, and at
most PER_REPORT of them between two reports, a run of at most ROWS records, which counts for the
whole batch. A sample takes a fifth of a millisecond, so at the default interval of reports all of
it is less than a fifth of a percent of a task's time, however fast it is. What came counts for half
after HALF_LIFE sampled records, so that figures follow the load. Shares are good to about
`sqrt(share / HALF_LIFE)` (a key with 1 % of the records: within 0.03 %) once so many were seen,
where batches are no part of a pattern.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.frequent_items import FrequentItems
from ...state.hashing import stable_hash

EVERY: Final = 8
PER_REPORT: Final = 4
ROWS: Final = 1024
HALF_LIFE: Final = 1 << 17

MOST_RUNS: Final = 1024
"""Loads are told of so many runs of key groups at most, all of the same width but the last."""

MOST_TEXT: Final = 80
"""Characters of a key that is named."""

NAMED_FROM: Final = 0.01
"""The share of the records from which on a key may be named."""


class KeyLoad:
    """Of one sender and edge. Used on the task's thread; `report` is plain data."""

    def __init__(self, max_parallelism: int, named: int, seed: int) -> None:
        """`named`: so many keys are named at most; 0: no key is looked at."""
        self._groups = max_parallelism
        self._width = -(-max_parallelism // MOST_RUNS)
        self._runs = np.zeros(-(-max_parallelism // self._width), dtype=np.float64)
        self._named = named
        self._items = FrequentItems()
        self._names: dict[int, str] = {}
        """Of the hashes that `_items` counts."""
        self._random = random.Random(seed)
        self._until = 0
        """Batches that come before the next one that is looked at."""
        self._left = PER_REPORT
        """Samples until the next report."""
        self._sampled = 0

    def is_due(self) -> bool:
        """Whether the batch that is being sent is to be looked at; asked once for each."""
        if self._until:
            self._until -= 1
            return False
        if not self._left:
            return False
        self._left -= 1
        self._until = self._random.randint(0, 2 * (EVERY - 1))
        return True

    def saw_columns(self, columns: pa.RecordBatch) -> None:
        """The keys of a batch, as columns."""
        from ...state.hash_columns import hash_columns

        start, rows = self._chosen(columns.num_rows)
        sample = columns.slice(start, rows)

        def name(row: int) -> str:
            values = [column[row].as_py() for column in sample.columns]
            return _text(values[0] if len(values) == 1 else tuple(values))

        self._count(hash_columns(sample), columns.num_rows / rows, name)

    def saw_keys(self, keys: Sequence[Any]) -> None:
        """The same as Python values, whose hashes are slow: a part of as many."""
        start, rows = self._chosen(len(keys), ROWS // 16)
        sample = keys[start : start + rows]
        hashes = np.fromiter(map(stable_hash, sample), dtype=np.uint64, count=rows)
        self._count(hashes, len(keys) / rows, lambda row: _text(sample[row]))

    def report(self) -> dict[str, Any]:
        """`loads`: of runs of `width` key groups, in records since about HALF_LIFE. `hot`: hash,
        text and count of the most frequent keys; `error`: by so much any key may have come more
        often than is said; `total`: of all keys."""
        self._left = PER_REPORT
        ranked, least = self._items.most(self._named + 1), NAMED_FROM * self._items.total
        hot = [(key, count) for key, count in ranked[: self._named] if count >= least]
        untold = ranked[len(hot)][1] if len(hot) < len(ranked) else 0.0
        return {
            "width": self._width,
            "loads": [round(load) for load in self._runs.tolist()],
            "hot": [(key, self._names[key], count) for key, count in hot],
            "error": self._items.error + untold,
            "total": self._items.total,
        }

    def _chosen(self, rows: int, most: int = ROWS) -> tuple[int, int]:
        """Where a run of a batch begins, and how long it is."""
        if rows <= most:
            return 0, rows
        return self._random.randrange(rows - most + 1), most

    def _count(
        self, hashes: npt.NDArray[np.uint64], weight: float, name: Callable[[int], str]
    ) -> None:
        """`weight`: records that each of them stands for."""
        runs = (hashes % np.uint64(self._groups)).astype(np.int64) // self._width
        self._runs += weight * np.bincount(runs, minlength=len(self._runs))
        if self._named:
            self._count_keys(hashes, weight, name)
        self._sampled += len(hashes)
        if self._sampled >= HALF_LIFE:
            self._sampled //= 2
            self._runs /= 2
            self._items.halve()

    def _count_keys(
        self, hashes: npt.NDArray[np.uint64], weight: float, name: Callable[[int], str]
    ) -> None:
        """What would lose its counter to the others of the sample does not come to the items."""
        ordered = np.sort(hashes)
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        counts = np.diff(starts, append=len(ordered))
        cut, counters = 0, self._items.counters
        if len(counts) > counters:
            several = counts[counts > 1]  # mostly few: sorting all would be most of the work
            cut = 1 if len(several) <= counters else int(np.sort(several)[-counters - 1])
        kept = np.flatnonzero(counts > cut)
        keys = ordered[starts[kept]].tolist()
        seen = {key: weight * (n - cut) for key, n in zip(keys, counts[kept].tolist(), strict=True)}
        total, error = weight * len(hashes), weight * cut
        self._items.merge(FrequentItems.of(counters, seen, error, total))
        names = self._names
        self._names = {
            key: names[key] if key in names else name(int(np.argmax(hashes == np.uint64(key))))
            for key in self._items.counts
        }


def _text(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:  # of the user's class: no reason to fail the job
        text = f"<{type(key).__name__}>"
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
