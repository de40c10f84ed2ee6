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

from ...api.windows.base import MergingWindowAssigner, TimeWindow
from ...api.windows.session_windows import SessionWindowAssigner
from .window_namespace import Namespace, to_namespace, to_window

Pairs = tuple[tuple[Namespace, Namespace], ...]
"""(window, state window) of each window in flight, as stored."""


@dataclass(frozen=True)
class Merge:
    """`windows` became `result`: fold the contents under `sources` into those under `target`.

    All are namespaces; `windows` leaves out `result` itself."""

    result: Namespace
    windows: tuple[Namespace, ...]
    target: Namespace
    sources: tuple[Namespace, ...]


@dataclass
class _Groups:
    """MergeCallback that remembers."""

    found: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def merge(self, to_be_merged: Collection[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindows:
    """window -> state window, as namespaces; no two share a state window, no two can merge."""

    def __init__(self, assigner: MergingWindowAssigner, pairs: Pairs | None) -> None:
        self._assigner = assigner
        self._by_overlap = type(assigner).merge_windows is SessionWindowAssigner.merge_windows
        """Whether windows merge exactly if they overlap or touch: the common case, done here."""
        self._state_of: dict[Namespace, Namespace] = dict(pairs or ())
        self._given = dict.fromkeys(self._state_of)
        self.changed = False
        """Whether `pairs()` differs from what was given."""

    def add(self, window: Any) -> tuple[Any, list[Merge]]:
        """Add a window: the window it is part of now, and what has to be merged for that."""
        added = to_namespace(window)
        if added in self._state_of:
            return window, []
        if self._by_overlap:
            return self._add_session(window, added)
        groups = _Groups()
        self._assigner.merge_windows([*map(to_window, self._state_of), window], groups)
        result = window
        merges = []
        for merged, members in groups.found:
            if window in members:
                result = merged
            known = [ns for ns in map(to_namespace, members) if ns in self._state_of]
            merges += self._combine(to_namespace(merged), known)
        self._ensure(to_namespace(result))
        return result, merges

    def state_of(self, namespace: Namespace) -> Namespace | None:
        """Where the window's contents are; None if it is not in flight."""
        return self._state_of.get(namespace)

    def retire(self, namespace: Namespace) -> None:
        """The window is over."""
        if self._state_of.pop(namespace, None) is not None:
            self.changed = True

    def pairs(self) -> Pairs:
        return tuple(self._state_of.items())

    def differences(self) -> tuple[list[Namespace], list[Namespace]]:
        """The windows that were given and are no more, and those that are new."""
        gone = [namespace for namespace in self._given if namespace not in self._state_of]
        return gone, [ns for ns in self._state_of if ns not in self._given]

    def validate(self) -> None:
        """Assert the invariants."""
        states = list(self._state_of.values())
        assert len(set(states)) == len(states)
        groups = _Groups()
        self._assigner.merge_windows(list(map(to_window, self._state_of)), groups)
        assert not groups.found

    def _add_session(self, window: Any, added: Namespace) -> tuple[Any, list[Merge]]:
        start, end = added
        near = sorted(ns for ns in self._state_of if ns[0] <= end and ns[1] >= start)
        if not near:
            self._ensure(added)
            return window, []
        cover = (min(start, near[0][0]), max(end, near[-1][1]))
        return TimeWindow(*cover), self._combine(cover, near)

    def _combine(self, result: Namespace, members: list[Namespace]) -> list[Merge]:
        """Put `members`, all in flight, under `result`; nothing to do if they are just that."""
        if not members or members == [result]:
            return []
        self.changed = True
        states = [self._state_of.pop(member) for member in members]
        self._state_of[result] = states[0]
        gone = tuple(member for member in members if member != result)
        return [Merge(result, gone, states[0], tuple(states[1:]))]

    def _ensure(self, namespace: Namespace) -> None:
        if namespace not in self._state_of:
            self._state_of[namespace] = namespace
            self.changed = True
