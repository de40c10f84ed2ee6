"""Values on their way from sinks to the job's client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from ...core.ids import OperatorId


class PublishedValues:
    """Append-only lists by operator; readers wait for more until the job is over. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[OperatorId, list[Any]] = {}
        self._closed = False
        self._changed = threading.Condition()

    def add(self, operator: OperatorId, key: str, value: Any) -> None:
        """Called once per key."""
        with self._changed:
            self._values.setdefault(operator, []).append(value)
            self._changed.notify_all()

    def close(self) -> None:
        """No more values will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def since(self, operator: OperatorId, start: int) -> tuple[list[Any], bool]:
        """The values from position `start` on, and whether these are all there will ever be."""
        with self._changed:
            return self._values.get(operator, [])[start:], self._closed

    def operators(self) -> set[OperatorId]:
        """Those that have published something."""
        with self._changed:
            return set(self._values)

    def follow(self, operator: OperatorId) -> Iterator[Any]:
        """All values in order, waiting for more until `close`."""
        position = 0
        while True:
            with self._changed:
                while not self._closed and len(self._values.get(operator, ())) <= position:
                    self._changed.wait()
                fresh = self._values.get(operator, [])[position:]
                if not fresh and self._closed:
                    return
            position += len(fresh)
            yield from fresh
