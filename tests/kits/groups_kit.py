"""Whose a key group is, by definition."""

from __future__ import annotations


def subtask_for(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask whose range holds `group`."""
    return group * parallelism // max_parallelism
