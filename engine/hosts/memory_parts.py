"""A store of cached streams' parts in memory: the local host's, and what Ray's keeper counts by."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...api.connectors.cached_parts import Ended, Kept, Part
from ...core.errors import ConnectorError


class MemoryParts:
    """A PartStore. Thread-safe: each call is over before the next begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._put: dict[str, dict[Part, Any]] = {}
        self._kept: dict[str, dict[Part, int]] = {}
        """Part -> the checkpoint that made it count."""
        self._ended: dict[str, set[Ended]] = {}
        self._dropped: set[str] = set()
        """Tokens under which nothing may be put any more."""

    def put(self, token: str, part: Part, data: Any) -> None:
        with self._lock:
            if token in self._dropped:
                raise ConnectorError("it was invalidated, or a subtask has given it up")
            self._put.setdefault(token, {})[part] = data

    def commit(self, token: str, kept: Sequence[Kept], ended: Sequence[Ended]) -> None:
        with self._lock:
            held = self._put.get(token, {})
            if token in self._dropped or any(one.part not in held for one in kept):
                raise ConnectorError("a part of it is not there")
            counted = self._kept.setdefault(token, {})
            for one in kept:
                counted.setdefault(one.part, one.checkpoint)
            self._ended.setdefault(token, set()).update(ended)
            if self._complete(token):  # what dead attempts put is nobody's
                self._put[token] = {part: data for part, data in held.items() if part in counted}

    def revoke(self, token: str, after: int) -> None:
        with self._lock:
            counted = self._kept.get(token, {})
            for part in [part for part, checkpoint in counted.items() if checkpoint > after]:
                del counted[part]
            self._ended.pop(token, None)

    def parts(self, token: str) -> list[Part] | None:
        with self._lock:
            if not self._complete(token):
                return None
            counted = self._kept.get(token, {})
            return sorted(counted, key=lambda part: (part.subtask, counted[part], part.number))

    def get(self, token: str, part: Part) -> Any:
        with self._lock:
            return self._put[token][part]

    def drop(self, token: str) -> None:
        with self._lock:
            self._dropped.add(token)
            self._put.pop(token, None)
            self._kept.pop(token, None)
            self._ended.pop(token, None)

    def _complete(self, token: str) -> bool:
        """Whether all subtasks of one attempt have ended."""
        of_attempts = Counter((e.attempt, e.parallelism) for e in self._ended.get(token, ()))
        return any(count == parallelism for (_, parallelism), count in of_attempts.items())

    def held_bytes(self) -> int:
        """About how much is held; for tests and figures."""
        with self._lock:
            return sum(
                len(payload)
                for parts in self._put.values()
                for data in parts.values()
                for _, payload, _ in data
            )
