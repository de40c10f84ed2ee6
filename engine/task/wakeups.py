"""The processing times that a task's operators asked for: a heap, and nothing that sleeps."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Wakeups:
    """Callbacks by due time (ms). Invariant: `_pending` holds exactly the (time, index) in the
    heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._pending: set[tuple[int, int]] = set()
        self._callbacks: list[Callable[[int], None]] = []

    def register(self, callback: Callable[[int], None]) -> Callable[[int], None]:
        """A `wake_at(ms)` function that makes `callback(now_ms)` run at that time."""
        index = len(self._callbacks)
        self._callbacks.append(callback)

        def wake_at(timestamp_ms: int) -> None:
            self._wake(timestamp_ms, index)

        return wake_at

    def next_due(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ms: int, halted: Callable[[], bool] = lambda: False) -> bool:
        """Run what is due; times for the past made meanwhile wait for the next call. So does what
        is left once one of them has brought it about that nothing is to be emitted (`halted`)."""
        if not self._heap or self._heap[0][0] > now_ms:
            return False
        due: dict[int, int] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            alarm = heapq.heappop(self._heap)
            self._pending.discard(alarm)
            due.setdefault(alarm[1], alarm[0])
        while due:
            index = next(iter(due))
            del due[index]
            self._callbacks[index](now_ms)
            if halted():
                break
        for index, timestamp_ms in due.items():
            self._wake(timestamp_ms, index)
        return True

    def _wake(self, timestamp_ms: int, index: int) -> None:
        alarm = (timestamp_ms, index)
        if alarm not in self._pending:
            self._pending.add(alarm)
            heapq.heappush(self._heap, alarm)

    def validate(self) -> None:
        assert set(self._heap) == self._pending, (self._heap, self._pending)
