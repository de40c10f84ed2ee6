"""What `kernels.changes` is told; apart from it, so that it can be named without loading numba."""

from __future__ import annotations

PAIRS, ALONE, MATCHED = 1, 2, 4
"""Flags of `show`: what gives result rows."""

UNTRACKED, LONE_SHOWN, MATCHED_SHOWN = 0, 1, 2
"""Values of `track`: which rows of the other side are in the result by themselves."""
