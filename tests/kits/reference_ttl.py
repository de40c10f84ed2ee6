"""State with a time to live, in plain Python: one key of one namespace.

Nothing is removed in the background: what has expired is there until an access comes across it.
"""

from __future__ import annotations

from typing import Any


class ExpiringModel:
    """`kind` of state; reducing and aggregating ones add numbers up (the latter gives the mean)."""

    def __init__(self, kind: str, ttl: int, on_read: bool) -> None:
        self.kind = kind
        self.ttl = ttl
        self.on_read = on_read
        self.one: tuple[Any, int] | None = None
        self.elements: list[tuple[Any, int]] = []
        self.entries: dict[Any, tuple[Any, int]] = {}
        """In the order in which they were stamped last."""

    def call(self, operation: str, argument: Any, now: int) -> Any:
        """One operation of the state at this time."""
        return getattr(self, f"{self.kind}_{operation}")(argument, now)

    def gone(self, stamp: int, now: int) -> bool:
        return stamp + self.ttl <= now

    # --- one value -----------------------------------------------------------------------------

    def find(self, now: int, read: bool) -> Any:
        if self.one is not None and self.gone(self.one[1], now):
            self.one = None
        if self.one is not None and read and self.on_read:
            self.one = (self.one[0], max(self.one[1], now))
        return None if self.one is None else self.one[0]

    def write(self, value: Any, now: int) -> None:
        self.one = (value, now if self.one is None else max(now, self.one[1]))

    def clear(self, _: Any, now: int) -> None:
        self.one, self.elements, self.entries = None, [], {}

    value_clear = list_clear = map_clear = reducing_clear = aggregating_clear = clear

    def value_read(self, _: Any, now: int) -> Any:
        return self.find(now, True)

    def value_write(self, value: Any, now: int) -> None:
        self.write(value, now)

    def reducing_read(self, _: Any, now: int) -> Any:
        return self.find(now, True)

    def reducing_write(self, value: Any, now: int) -> None:
        before = self.find(now, False)
        self.write(value if before is None else before + value, now)

    def aggregating_read(self, _: Any, now: int) -> Any:
        held = self.find(now, True)
        return None if held is None else held[0] / held[1]

    def aggregating_write(self, value: Any, now: int) -> None:
        total, count = self.find(now, False) or (0, 0)
        self.write((total + value, count + 1), now)

    # --- lists ---------------------------------------------------------------------------------

    def list_read(self, _: Any, now: int) -> Any:
        self.elements = [pair for pair in self.elements if not self.gone(pair[1], now)]
        if self.on_read:
            self.elements = [(element, max(stamp, now)) for element, stamp in self.elements]
        return [element for element, _ in self.elements]

    def list_write(self, value: Any, now: int) -> None:
        while self.elements and self.gone(self.elements[0][1], now):
            del self.elements[0]
        self.elements.append((value, now))

    def list_replace(self, value: Any, now: int) -> None:
        self.elements = [(value, now), (value + 1, now)]

    # --- maps ----------------------------------------------------------------------------------

    def stamp(self, key: Any, value: Any, now: int) -> None:
        before = self.entries.pop(key, None)
        self.entries[key] = (value, now if before is None else max(now, before[1]))

    def map_read(self, _: Any, now: int) -> Any:
        self.entries = {k: pair for k, pair in self.entries.items() if not self.gone(pair[1], now)}
        if self.on_read:
            for key, (value, stamp) in list(self.entries.items()):
                self.entries[key] = (value, max(stamp, now))
        return {key: value for key, (value, _) in self.entries.items()}

    def map_get(self, value: Any, now: int) -> Any:
        key = value % 3
        if key in self.entries and self.gone(self.entries[key][1], now):
            del self.entries[key]
        if key not in self.entries:
            return None
        if self.on_read and now > self.entries[key][1]:
            self.stamp(key, self.entries[key][0], now)
        return self.entries[key][0]

    def map_write(self, value: Any, now: int) -> None:
        while self.entries and self.gone(next(iter(self.entries.values()))[1], now):
            del self.entries[next(iter(self.entries))]
        self.stamp(value % 3, value, now)

    def map_remove(self, value: Any, now: int) -> None:
        self.entries.pop(value % 3, None)

    def map_empty(self, _: Any, now: int) -> bool:
        return all(self.gone(stamp, now) for _, stamp in self.entries.values())
