"""Which files of collected results (`result_log`) are put together, so that they do not become as
many as the job has checkpoints. Pure; of one coordinator, which puts its own together alone.

    level 0      one file per checkpoint with results; the last `BEHIND` stay as they are
    level 1      `AT_ONCE` of these in one, in the place of the last of them
    level 2      `AT_ONCE` of level 1 in one, and so on

So there are at most a few dozen, and what is in them was written once per level. Nobody goes on
from a checkpoint before the oldest that there is, but from the beginning: files are put together up
to that one, and who goes on from a later one reads all of it. Those that were put together go last;
who reads meanwhile may find both.
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
    found to be too large for that; `merge`: as of `file_name`."""

    place: Place
    size: int
    level: int = 0
    merge: int = 0


class ResultMerges:
    """Invariants: `_files` ascends by place; their levels never ascend."""

    def __init__(self, at_once: int = AT_ONCE, behind: int = BEHIND) -> None:
        self._at_once = at_once
        self._behind = behind
        self._files: list[Written] = []

    def written(self, place: Place, size: int) -> None:
        """Another file, or the same once more. That of an older checkpoint, whose publication hung,
        may come behind those of newer ones, and behind what these were put together to: it counts
        as such a one."""
        if any(one.place == place for one in self._files):
            return
        level = max((one.level for one in self._files if one.place > place), default=0)
        self._files = sorted([*self._files, Written(place, size, level)], key=lambda one: one.place)

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

    def merged(self, files: Sequence[Written], size: int, merge: int) -> None:
        """These are one now, so large, in the place of the last. Others may have been written
        meanwhile, also between them."""
        place = files[-1].place
        gone = {one.place for one in files}
        others = [one for one in self._files if one.place not in gone]
        level = max(one.level for one in (*files, *(o for o in others if o.place > place))) + 1
        made = [Written(place, size, level, merge)]
        before = [replace(o, level=max(o.level, level)) for o in others if o.place < place]
        self._files = [*before, *made, *(o for o in others if o.place > place)]

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
    """All that is in these files of one coordinator, in the order of their places; what the last
    says of others counts. They follow each other or overlap: one of an older checkpoint that came
    late goes on from where those before it ended, and a newer one may hold all of that.
    CorruptCheckpointError where something is missing between two."""
    first, *others = sorted(files, key=lambda file: file.start)
    results, start = list(first.results), first.start
    for file in others:
        end = start + len(results)
        if file.start > end:
            raise CorruptCheckpointError(
                f"a file of results goes on from {file.start}, and those before it end at {end}"
            )
        results += file.results[end - file.start :]
    return replace(files[-1], start=start, results=results)
