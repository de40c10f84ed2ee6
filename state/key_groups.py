"""From keys to key groups to subtasks: who owns which key at any parallelism.

A key's group is `stable_hash(key) mod max_parallelism`, for ever; a subtask owns a contiguous range
of groups. Groups are thus the unit in which keyed state moves between subtasks at a rescale.
Ranges are of one size, by Flink's arithmetic (`KeyGroupRangeAssignment`), unless a `Deal` says
where they begin (`key_group_deals`).

`route` and `route_keys` order a batch's records by target subtask, for the keyed exchange. Records
of one subtask keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import ConfigurationError
from ..core.ids import EVEN, Deal, KeyGroupRange
from .hashing import TAG_INT, stable_hash

CACHED_KEYS = 1 << 16
"""How many keys of one type `route_keys` remembers the subtask of."""

_CACHED_TYPES = frozenset({int, str, bytes, bool, type(None)})


def key_group(key: Any, max_parallelism: int) -> int:
    """The group of one key, in 0..max_parallelism - 1."""
    return stable_hash(key) % max_parallelism


def key_groups_of(columns: pa.RecordBatch, max_parallelism: int) -> npt.NDArray[np.int32]:
    """The group of each row's key (int32, one per row); several columns are a tuple."""
    from .hash_columns import hash_columns

    return (hash_columns(columns) % np.uint64(max_parallelism)).astype(np.int32)


def range_for(
    subtask: int, parallelism: int, max_parallelism: int, deal: Deal = EVEN
) -> KeyGroupRange:
    """The groups that `subtask` (0..parallelism - 1) owns. Never empty."""
    if not 0 <= subtask < parallelism <= max_parallelism:
        raise ConfigurationError(
            f"need 0 <= subtask < parallelism <= max_parallelism, have subtask {subtask}, "
            f"parallelism {parallelism}, max_parallelism {max_parallelism}"
        )
    if deal:
        check_deal(deal, parallelism, max_parallelism)
        behind = (*deal[1:], max_parallelism)[subtask]
        return KeyGroupRange(deal[subtask], behind - 1)
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(first, last)


def check_deal(deal: Deal, parallelism: int, max_parallelism: int) -> None:
    """ConfigurationError for one that leaves a subtask without groups, or a group without one."""
    bounds = (*deal, max_parallelism)
    rises = all(first < behind for first, behind in pairwise(bounds))
    if len(deal) != parallelism or bounds[0] != 0 or not rises:
        raise ConfigurationError(
            f"the key groups of {parallelism} subtasks begin at 0 and then one behind the other, "
            f"below {max_parallelism}; they are said to begin at {', '.join(map(str, deal))}"
        )


def owned_groups(groups: KeyGroupRange) -> npt.NDArray[np.int32]:
    """The groups of a range, ascending."""
    return np.arange(groups.first, groups.last + 1, dtype=np.int32)


def group_order(groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Row indices sorted by group, stable: how every snapshot is ordered."""
    # A group is below 2**15, and numpy sorts 16-bit integers by radix.
    return np.argsort(groups.astype(np.int16), kind="stable")


@lru_cache(maxsize=64)
def subtask_table(
    parallelism: int, max_parallelism: int, deal: Deal = EVEN
) -> npt.NDArray[np.int32]:
    """The subtask of every group: int32[max_parallelism], read-only."""
    if deal:
        check_deal(deal, parallelism, max_parallelism)
        sizes = np.diff(deal, append=max_parallelism)
        table = np.repeat(np.arange(parallelism, dtype=np.int32), sizes)
    else:
        groups = np.arange(max_parallelism, dtype=np.int64)
        table = (groups * parallelism // max_parallelism).astype(np.int32)
    table.flags.writeable = False
    return table


def route(
    columns: pa.RecordBatch, parallelism: int, max_parallelism: int, deal: Deal = EVEN
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row indices ordered by target subtask, and where each subtask's run begins.

    `order[offsets[i]:offsets[i + 1]]` are the rows of subtask i, ascending. Shapes: n and
    parallelism + 1.
    """
    from .hash_columns import hash_columns, plain_int64
    from .hash_kernels import route_hashes, route_int64

    table = subtask_table(parallelism, max_parallelism, deal)
    values = plain_int64(columns)
    if values is not None:
        return route_int64(values, table, parallelism, TAG_INT)
    return route_hashes(hash_columns(columns), table, parallelism)


def route_keys(
    keys: Sequence[Any], parallelism: int, max_parallelism: int, deal: Deal = EVEN
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`route` for Python keys. Same result for the same keys, whichever face they come in.

    Remembers the subtasks of recent keys, by type: `1`, `1.0` and `True` are equal to a dict but
    have different hashes.
    """
    targets = np.fromiter(
        _targets(keys, parallelism, max_parallelism, deal), dtype=np.int16, count=len(keys)
    )
    order = np.argsort(targets, kind="stable").astype(np.int64, copy=False)
    offsets = np.zeros(parallelism + 1, dtype=np.int64)
    np.cumsum(np.bincount(targets, minlength=parallelism), out=offsets[1:])
    return order, offsets


def _targets(
    keys: Sequence[Any], parallelism: int, max_parallelism: int, deal: Deal
) -> Iterable[int]:
    shape = _common_shape(keys)
    if shape is None:
        table = _subtasks(parallelism, max_parallelism, deal)
        return [table[stable_hash(key) % max_parallelism] for key in keys]
    return map(_cache(shape, parallelism, max_parallelism, deal).__getitem__, keys)


def _common_shape(keys: Sequence[Any]) -> object | None:
    """What all keys have in common that makes equality of keys imply equality of hashes: their
    type, or for tuples the types of their fields. None if they are mixed or of other types."""
    types = set(map(type, keys))
    if len(types) != 1:
        return None
    only = types.pop()
    if only in _CACHED_TYPES:
        return only
    if only is not tuple:
        return None
    shapes = {tuple(map(type, key)) for key in keys}
    shape = shapes.pop()
    return shape if not shapes and _CACHED_TYPES.issuperset(shape) else None


class _SubtaskCache(dict[Any, int]):
    """key -> subtask, filled on demand, emptied when it holds CACHED_KEYS."""

    __slots__ = ("_table",)

    def __init__(self, table: list[int]) -> None:
        """`table`: the subtask of every group."""
        super().__init__()
        self._table = table

    def __missing__(self, key: Any) -> int:
        if len(self) >= CACHED_KEYS:
            self.clear()
        subtask = self[key] = self._table[stable_hash(key) % len(self._table)]
        return subtask


@lru_cache(maxsize=64)
def _cache(shape: object, parallelism: int, max_parallelism: int, deal: Deal) -> _SubtaskCache:
    return _SubtaskCache(_subtasks(parallelism, max_parallelism, deal))


@lru_cache(maxsize=64)
def _subtasks(parallelism: int, max_parallelism: int, deal: Deal) -> list[int]:
    """As `subtask_table`, for Python keys."""
    subtasks: list[int] = subtask_table(parallelism, max_parallelism, deal).tolist()
    return subtasks
