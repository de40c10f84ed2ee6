"""A case in plain Python: a loop over its script."""

from __future__ import annotations

from typing import Any

from .cases import ConnectedCase, Effects
from .functions import results_of

Results = dict[tuple[Any, bool], list[Any]]
"""By key, and whether they go to the side: in order."""


class Model:
    def __init__(self, case: ConnectedCase) -> None:
        self._case = case
        self._held: dict[Any, tuple[int, ...]] = {}
        self._timers: dict[tuple[int, Any], int] = {}
        """(time, key) -> when it was registered."""
        self._registered = 0
        self._rules: dict[int, int] = {}
        self.results: Results = {}

    def run(self) -> Results:
        case = self._case
        for kind, *rest in case.script:
            if kind == "mark":
                self._advance(rest[0])
            elif kind == "rows":
                for record in rest[1]:
                    if case.broadcast and record.port == 1:
                        case.on_element(self._rules, record.n)
                    else:
                        held = self._held.get(record.k, ())
                        effects = case.on_record(held, record, self._rules)
                        self._take(effects, record.k, ("record", record.n))
        return self.results

    def _advance(self, watermark: int) -> None:
        while due := [timer for timer in self._timers if timer[0] <= watermark]:
            timer = min(due, key=lambda one: (one[0], self._timers[one]))
            del self._timers[timer]
            timestamp, key = timer
            effects = self._case.on_timer(self._held.get(key, ()), timestamp, self._rules)
            self._take(effects, key, ("timer", timestamp))

    def _take(self, effects: Effects, key: Any, what: tuple[str, int]) -> None:
        self._held[key] = effects.held
        for timestamp in effects.timers:
            self._registered += 1
            self._timers.setdefault((timestamp, key), self._registered)
        for timestamp in effects.deleted:
            self._timers.pop((timestamp, key), None)
        for result in results_of(effects, key, what, self._rules):
            self.results.setdefault((key, result[-1] % 3 == 2), []).append(result)
