"""Splits over record numbers 0, 1, 2, ...: how a generator is cut into parallel, replayable parts.

The numbers are dealt out in blocks, round-robin over the splits:

    block      0    1    2    3    4    5        split 0 of 3 has blocks 0 and 3
    split      0    1    2    0    1    2

so that all splits move through the numbers at one pace, and splits of an unbounded source exist.
Contiguous ranges are the case of one big block per split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...api.connectors.base import EnumeratorContext, SplitEnumerator
from ...core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class NumberSplit:
    """Split `index` of `of`; `count`: how many numbers the source has, None for ever.

    `position`: how many of this split's numbers are read; 0 <= position <= size.
    """

    index: int
    of: int
    block: int
    count: int | None
    position: int = 0

    @property
    def split_id(self) -> str:
        return f"{self.index}/{self.of}"

    @property
    def size(self) -> int | None:
        """How many numbers this split has."""
        if self.count is None:
            return None
        rounds, rest = divmod(self.count, self.of * self.block)
        return rounds * self.block + min(max(rest - self.index * self.block, 0), self.block)

    @property
    def remaining(self) -> int | None:
        size = self.size
        return None if size is None else size - self.position

    def runs(self, length: int) -> list[tuple[int, int]]:
        """The next `length` numbers (fewer at the end) as runs (first number, how many)."""
        remaining = self.remaining
        left = length if remaining is None else min(length, remaining)
        at = self.position
        runs: list[tuple[int, int]] = []
        while left > 0:
            round_, within = divmod(at, self.block)
            take = min(left, self.block - within)
            first = (round_ * self.of + self.index) * self.block + within
            if runs and sum(runs[-1]) == first:
                runs[-1] = (runs[-1][0], runs[-1][1] + take)
            else:
                runs.append((first, take))
            at += take
            left -= take
        return runs

    def advanced(self, length: int) -> NumberSplit:
        return replace(self, position=self.position + length)


def make_splits(
    count: int | None, splits: int, block: int | None, contiguous: bool
) -> list[NumberSplit]:
    """Cut `count` numbers into `splits` splits of interleaved blocks or contiguous ranges."""
    if splits < 1:
        raise ConfigurationError(f"a generator needs at least 1 split, is told {splits}")
    if contiguous:
        if count is None:
            raise ConfigurationError("an unbounded generator cannot have contiguous splits")
        block = max(1, -(-count // splits))
    if block is None or block < 1:
        raise ConfigurationError(f"the block of a generator must be at least 1, is {block}")
    return [NumberSplit(index, splits, block, count) for index in range(splits)]


class NumberEnumerator(SplitEnumerator):
    """Gives subtask i of p the splits i, i + p, i + 2p, ... at once, so all are read together."""

    def __init__(self, context: EnumeratorContext, unassigned: Sequence[NumberSplit]) -> None:
        self._parallelism = context.parallelism
        self._unassigned = list(unassigned)

    def next_splits(self, subtask: int) -> Sequence[NumberSplit] | None:
        mine = [s for s in self._unassigned if s.index % self._parallelism == subtask]
        self._unassigned = [s for s in self._unassigned if s not in mine]
        return mine or None

    def snapshot(self) -> list[NumberSplit]:
        return list(self._unassigned)
