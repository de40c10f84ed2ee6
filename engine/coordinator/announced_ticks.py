"""The times at which the job master wants to be called, told to the host once each."""

from __future__ import annotations

from collections.abc import Iterable

from .actions import Actions, TickAt


class AnnouncedTicks:
    """Of one job master. Invariant: the host owes a tick at the time that was told last, if any."""

    def __init__(self) -> None:
        self._announced_ms: int | None = None
        """The TickAt that the host has not answered yet."""

    def came(self) -> None:
        """The host called, early or in time."""
        self._announced_ms = None

    def announce(self, times: Iterable[int | None]) -> Actions:
        """A TickAt for the first of these times (ms), unless it is told already; None: no time."""
        first: int | None = None
        for time_ms in times:
            if time_ms is not None and (first is None or time_ms < first):
                first = time_ms
        if first is None or first == self._announced_ms:
            return ()
        self._announced_ms = first
        return (TickAt(first),)
