"""Which files of collected results (`result_log`) are put together, so that they do not become as
many as the job has checkpoints. Pure; of one coordinator, which puts its own together alone.

    level 0      one file per checkpoint with results; the last `BEHIND` stay as they are
    level 1      `AT_ONCE` of these in one, under the name of the last of them
    level 2      `AT_ONCE` of level 1 in one, and so on

So there are at most a few dozen, and what is in them was written once per level. Nobody goes on
from a checkpoint before the oldest that there is, but from the beginning: files are put together up
to that one, and who goes on from a later one reads all of it. Under one name there are only ever
more results, and those that were put together go last; who reads meanwhile may find both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...core.errors import CorruptCheckpointError
from .result_files import Place, ResultFile

AT_ONCE: Final = 16

BEHIND: Final = 16
"""So many checkpoints later all tasks have heard of one that is complete, also those of a job that
keeps them in memory and goes on from what its tasks know."""

MOST_BYTES: Final = 64 << 20
"""What is larger together is no small file."""


@dataclass(frozen=True)
class Written:
    """A file that is there. `size` in bytes; `level`: how often its results were written again, or
    found to be too large for that."""

    place: Place
    size: int
    level: int = 0


class ResultMerges:
    """Invariants: `_files` ascends by place; their levels never ascend."""

    def __init__(self, at_once: int = AT_ONCE, behind: int = BEHIND) -> None:
        self._at_once = at_once
        self._behind = behind
        self._files: list[Written] = []

    def written(self, place: Place, size: int) -> None:
        """Another file, or the same once more. That of an older checkpoint may come behind one of a
        newer, but not behind one that was put together."""
        others = [one for one in self._files if one.place != place]
        self._files = sorted([*others, Written(place, size)], key=lambda one: one.place)

    def due(self, oldest: int) -> list[Written]:
        """Those that may be put together now, in order; none: []. `oldest`: the first checkpoint
        that there is."""
        end = sum(one.place.checkpoint <= oldest for one in self._files)
        end = min(end, len(self._files) - self._behind)
        first = end
        while first > 0:
            level = self._files[first - 1].level
            first = sum(one.level > level for one in self._files[:first])
            for at in range(first, end - self._at_once + 1):
                some = self._files[at : at + self._at_once]
                if some[-1].level != level:
                    break
                if sum(one.size for one in some) <= MOST_BYTES:
                    return some
                self._files[at] = replace(some[0], level=level + 1)
        return []

    def merged(self, files: Sequence[Written], size: int) -> None:
        """These are one now, so large, under the name of the last."""
        whole = Written(files[-1].place, size, files[-1].level + 1)
        first = self._files.index(files[0])
        self._files[first : first + len(files)] = [whole]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._files)

    def validate(self) -> None:
        """Assert the invariants."""
        places = [one.place for one in self._files]
        levels = [one.level for one in self._files]
        assert places == sorted(set(places)), places
        assert levels == sorted(levels, reverse=True), levels


def joined(files: Sequence[ResultFile]) -> ResultFile:
    """All that is in these files of one coordinator, which follow each other or overlap.
    CorruptCheckpointError where something is missing between two."""
    results, start = list(files[0].results), files[0].start
    for file in files[1:]:
        end = start + len(results)
        if file.start > end:
            raise CorruptCheckpointError(
                f"a file of results goes on from {file.start}, and those before it end at {end}"
            )
        results += file.results[end - file.start :]
    return replace(files[-1], start=start, results=results)
