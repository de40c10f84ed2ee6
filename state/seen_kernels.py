"""Kernels of sets of (slot, value) in which each member carries a bit per view that has seen it.

A set is open addressing with linear probing over `cells`: (value's code + 1) << 32 | slot, 0 for a
free cell; there may be any number of cells below 2**31, one of them free. The bits of eight views
are a byte a cell in an array of their own. Twins in tests/kits/reference_seen_pairs.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.native import boolean, int64, njit, uint8, void
from .hash_kernels import fresh, frozen

INTS_IN, INTS, BOOLS_IN = frozen(int64), fresh(int64), frozen(boolean)
BYTES_IN, BYTES = frozen(uint8), fresh(uint8)

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)


@njit(inline="always")
def _start(word: Any, cells: Any) -> Any:
    """Where probing for a word starts: the top bits of its hash, as a fraction of the cells."""
    h = np.uint64(word) * _C1
    h ^= h >> np.uint64(32)
    return np.int64(((h * _C2) >> np.uint64(32)) * np.uint64(cells) >> np.uint64(32))


@njit([int64(INTS_IN, INTS, INTS)], **OPTIONS)
def find_pairs(words: Any, cells: Any, at: Any) -> int:
    """at[i] = the cell of words[i], put there if it is new; returns how many are. There is a free
    cell for each word and one more."""
    new = 0
    for i in range(words.size):
        word = words[i]
        cell = _start(word, cells.size)
        while cells[cell] != word:
            if cells[cell] == 0:
                cells[cell] = word
                new += 1
                break
            cell += 1
            if cell == cells.size:
                cell = 0
        at[i] = cell
    return new


@njit([void(INTS_IN, BOOLS_IN, int64, BYTES, int64, INTS)], **OPTIONS)
def see_fresh(at: Any, valid: Any, bit: int, seen: Any, view: int, fresh: Any) -> None:
    """As `see_pairs`; fresh[i] gets the bit of this view (its number) where it sees the pair of row
    i for the first time."""
    dense = valid.size == 0
    mark = np.int64(1) << view
    for i in range(at.size):
        if dense or valid[i]:
            held = seen[at[i]]
            if held & bit == 0:
                seen[at[i]] = held | bit
                fresh[i] |= mark


@njit([void(INTS_IN, INTS_IN, BOOLS_IN, int64, BYTES, INTS)], **OPTIONS)
def see_pairs(slots: Any, at: Any, valid: Any, bit: int, seen: Any, distinct: Any) -> None:
    """The view of this bit sees each valid row's pair (`valid` empty: all), which lies at cell
    at[i]; distinct[slot] follows the number of pairs that it has seen."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            known = np.int64(seen[at[i]])
            if known & bit == 0:
                seen[at[i]] = np.uint8(known | bit)
                distinct[slots[i]] += 1


@njit([void(INTS_IN, BYTES_IN, INTS, BYTES)], **OPTIONS)
def move_pairs(cells: Any, seen: Any, new_cells: Any, new_seen: Any) -> None:
    """Put the pairs of a set and eight views' bits into another, which is empty or holds them
    already (with the bits of other views)."""
    for old in range(cells.size):
        word = cells[old]
        if word == 0:
            continue
        cell = _start(word, new_cells.size)
        while new_cells[cell] != 0 and new_cells[cell] != word:
            cell += 1
            if cell == new_cells.size:
                cell = 0
        new_cells[cell] = word
        new_seen[cell] = seen[old]
