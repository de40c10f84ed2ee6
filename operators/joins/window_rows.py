"""The rows of both sides in one window, by slots and key groups, cut so that what the join makes of
each part is about a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...core.arrays import Int64s
from ...core.joined_columns import NO_ROW
from ...state.key_groups import group_order
from ..windows.fired_slices import ALL_GROUPS
from .pairing import Pairs, join_rows

Groups = npt.NDArray[np.int32]


@dataclass(frozen=True)
class WindowRows:
    """`how`: the kind of join. Of left and right: `slots`, less than `count`, equal for
    equal keys and NO_ROW for null; `groups`, the key groups; `at`, which rows of the side these
    are, None for all."""

    how: str
    slots: Sequence[Int64s]
    groups: Sequence[Groups]
    count: int
    at: Sequence[Int64s] | None = None

    def pairs(self, limit: int) -> Iterator[Pairs]:
        """What the join makes of them, at most `limit` rows at a time, as places among them."""
        return join_rows(self.how, self.slots[0], self.slots[1], self.count, limit)

    def of(self, chosen: npt.NDArray[np.bool_]) -> WindowRows:
        """Those of the chosen key groups."""
        rows = [np.flatnonzero(chosen[groups]) for groups in self.groups]
        return self._take(rows, self.slots, self.count)

    def parts(self, limit: int) -> Iterator[tuple[int, WindowRows]]:
        """All of them in parts of key groups that give about `limit` rows, or of one group that
        gives more; each with the last of its groups."""
        weights = self._weights(limit)
        if weights is None:
            yield ALL_GROUPS, self
            return
        ends, most = np.cumsum(weights), len(weights)
        orders = [group_order(groups) for groups in self.groups]
        edges = [np.cumsum([0, *np.bincount(one, minlength=most)]) for one in self.groups]
        slots, slot_edges = self._slots_by_group(most)
        cuts = [-1]
        while cuts[-1] < most - 1:
            done = ends[cuts[-1]] if cuts[-1] >= 0 else 0
            through = int(np.searchsorted(ends, done + limit, side="right")) - 1
            cuts.append(max(through, cuts[-1] + 1))
        for before, through in pairwise(cuts):
            bounds = [(edge[before + 1], edge[through + 1]) for edge in edges]
            rows = [order[a:b] for order, (a, b) in zip(orders, bounds, strict=True)]
            if any(map(len, rows)):
                first, last = slot_edges[before + 1], slot_edges[through + 1]
                part = self._take(rows, slots, int(last - first))
                numbers = [np.where(one == NO_ROW, NO_ROW, one - first) for one in part.slots]
                yield through, replace(part, slots=numbers)

    def _slots_by_group(self, most: int) -> tuple[list[Int64s], Int64s]:
        """The slots numbered anew: those of one key group follow each other; and where those
        of each group begin."""
        groups = np.zeros(self.count + 1, dtype=np.int32)  # The last is for NO_ROW.
        for slots, mine in zip(self.slots, self.groups, strict=True):
            groups[slots] = mine
        numbers = np.empty(self.count + 1, dtype=np.int64)
        numbers[group_order(groups[:-1])] = np.arange(self.count)
        numbers[NO_ROW] = NO_ROW
        edges = np.cumsum([0, *np.bincount(groups[:-1], minlength=most)])
        return [numbers[slots] for slots in self.slots], edges

    def _weights(self, limit: int) -> Int64s | None:
        """About how many rows the join makes of each key group; None if of all together no more
        than `limit`."""
        left, right = self.slots
        if (len(left) + 1) * (len(right) + 1) <= limit:
            return None
        of_left = np.ones(len(left), dtype=np.int64)
        if self.how not in ("semi", "anti"):
            sizes = np.bincount(right[right != NO_ROW], minlength=self.count + 1)
            of_left = np.maximum(sizes[left], 1)
        alone = len(right) if self.how in ("right", "full") else 0
        if int(of_left.sum()) + alone <= limit:
            return None
        most = 1 + max(int(groups.max()) for groups in self.groups if len(groups))
        weights: Int64s = np.bincount(self.groups[0], of_left, minlength=most).astype(np.int64)
        if alone:
            weights += np.bincount(self.groups[1], minlength=most)
        return weights

    def _take(self, rows: Sequence[Int64s], slots: Sequence[Int64s], count: int) -> WindowRows:
        """These rows of each side, with the slots that `slots` has for all."""
        slots = [mine[chosen] for mine, chosen in zip(slots, rows, strict=True)]
        groups = [mine[chosen] for mine, chosen in zip(self.groups, rows, strict=True)]
        if self.at is not None:
            rows = [mine[chosen] for mine, chosen in zip(self.at, rows, strict=True)]
        return WindowRows(self.how, slots, groups, count, rows)
