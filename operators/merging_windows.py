"""The windows in flight of one key, where windows grow together (Flink's MergingWindowSet).

Moving a window's contents whenever it grows would cost a read and a write of all it holds. So each
window keeps its contents under the *state window* it started with, and only this mapping changes
when it grows. When two windows with contents meet, one's state window survives and the other's
contents are folded into it.

Pure: a new window in, the merges to carry out returned. The mapping is keyed state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ..api.session_windows import SessionWindowAssigner
from ..api.windows import MergingWindowAssigner
from .window_namespace import Namespace, to_namespace, to_window

Pairs = tuple[tuple[Namespace, Namespace], ...]
"""(window, state window) of each window in flight, as stored."""


@dataclass(frozen=True)
class Merge:
    """`windows` became `result`: fold the contents under `sources` into those under `target`."""

    result: Any
    windows: tuple[Any, ...]
    target: Namespace
    sources: tuple[Namespace, ...]


@dataclass
class _Groups:
    """MergeCallback that remembers."""

    found: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def merge(self, to_be_merged: Collection[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """window -> state window; no two windows share a state window, none overlap."""

    def __init__(self, assigner: MergingWindowAssigner, pairs: Pairs | None) -> None:
        self._assigner = assigner
        self._by_overlap = type(assigner).merge_windows is SessionWindowAssigner.merge_windows
        """Only windows that overlap or touch a new one can merge with it: none else is looked
        at."""
        self._state_of = {to_window(window): state for window, state in pairs or ()}
        self.changed = False
        """Whether `pairs()` differs from what was given."""

    def add(self, window: Any) -> tuple[Any, list[Merge]]:
        """Add a window: the window it is part of now, and what has to be merged for that."""
        if window in self._state_of:
            return window, []
        if self._by_overlap:
            near = [w for w in self._state_of if w.start <= window.end and w.end >= window.start]
            if not near:
                self._state_of[window] = to_namespace(window)
                self.changed = True
                return window, []
        else:
            near = list(self._state_of)
        groups = _Groups()
        self._assigner.merge_windows([*near, window], groups)
        result = window
        merges = []
        for merged, members in groups.found:
            if window in members:
                result = merged
            merge = self._combine(merged, [m for m in members if m in self._state_of])
            if merge is not None:
                merges.append(merge)
        if result not in self._state_of:
            self._state_of[result] = to_namespace(result)
            self.changed = True
        return result, merges

    def state_of(self, window: Any) -> Namespace | None:
        """Where the window's contents are; None if it is not in flight."""
        return self._state_of.get(window)

    def retire(self, window: Any) -> None:
        """The window is over."""
        if self._state_of.pop(window, None) is not None:
            self.changed = True

    def pairs(self) -> Pairs:
        return tuple((to_namespace(window), state) for window, state in self._state_of.items())

    def validate(self) -> None:
        """Assert the invariants."""
        states = list(self._state_of.values())
        assert len(set(states)) == len(states)
        groups = _Groups()
        self._assigner.merge_windows(list(self._state_of), groups)
        assert not groups.found

    def _combine(self, result: Any, members: list[Any]) -> Merge | None:
        """Put `members` (all with state) under `result`; None if nothing is to be done."""
        if not members or members == [result]:
            return None
        self.changed = True
        states = [self._state_of.pop(member) for member in members]
        self._state_of[result] = states[0]
        gone = tuple(member for member in members if member != result)
        return Merge(result, gone, states[0], tuple(states[1:]))
