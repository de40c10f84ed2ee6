"""Which few of many items come most often, in little memory: Misra's and Gries' counters (1982),
mergeable (Agarwal et al., PODS 2012)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

COUNTERS: Final = 64


class FrequentItems:
    """Counts of at most `counters` items (any hashable ones).

    Of an item that came `n` times, `count(item) <= n <= count(item) + error`, where an item without
    a counter has the count 0, and `error <= (total - sum of counts) / (counters + 1)`. So an item
    that is more than 1 in `counters + 1` of all has a counter. The same holds of what was merged,
    in any order, and of what was halved, for halves.

    >>> items = FrequentItems(2)
    >>> items.add({"a": 5, "b": 3, "c": 2})
    >>> items.counts, items.error, items.total
    ({'a': 3, 'b': 1}, 2.0, 10.0)
    """

    def __init__(self, counters: int = COUNTERS) -> None:
        self.counters = counters
        self.counts: dict[Any, float] = {}
        """At most `counters`, each above 0."""
        self.error = 0.0
        self.total = 0.0

    @staticmethod
    def of(counters: int, counts: Mapping[Any, float], error: float, total: float) -> FrequentItems:
        """As its fields were told."""
        made = FrequentItems(counters)
        made.counts, made.error, made.total = dict(counts), error, total
        return made

    def add(self, counts: Mapping[Any, float]) -> None:
        """Items that came, each so often."""
        self._take(counts)
        self.total += sum(counts.values())

    def merge(self, other: FrequentItems) -> None:
        """What another one has seen, too; it stays as it is. Both have as many counters."""
        self._take(other.counts)
        self.error += other.error
        self.total += other.total

    def halve(self) -> None:
        """What came so far counts for half."""
        self.counts = {item: count / 2 for item, count in self.counts.items()}
        self.error /= 2
        self.total /= 2

    def count(self, item: Any) -> float:
        """The least that an item came."""
        return self.counts.get(item, 0.0)

    def most(self, number: int) -> list[tuple[Any, float]]:
        """The items with the greatest counts, the greatest first."""
        return sorted(self.counts.items(), key=lambda one: -one[1])[:number]

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self.counts) <= self.counters
        assert all(count > 0 for count in self.counts.values())
        lost = self.total - sum(self.counts.values())
        assert self.error * (self.counters + 1) <= lost * (1 + 1e-9) + 1e-9

    def _take(self, counts: Mapping[Any, float]) -> None:
        """Each of the `counters + 1` largest loses what the last of them has, so that goes."""
        for item, count in counts.items():
            self.counts[item] = self.counts.get(item, 0) + count
        if len(self.counts) > self.counters:
            cut = sorted(self.counts.values(), reverse=True)[self.counters]
            self.counts = {item: n - cut for item, n in self.counts.items() if n > cut}
            self.error += cut


def merged(parts: Iterable[FrequentItems]) -> FrequentItems:
    """What all have seen, as many counters as the first one has; none: of nothing."""
    whole: FrequentItems | None = None
    for part in parts:
        whole = FrequentItems(part.counters) if whole is None else whole
        whole.merge(part)
    return FrequentItems() if whole is None else whole
