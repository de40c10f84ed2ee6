"""Windows in plain Python: every record is looked at again whenever a window fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from ...api.windows.session_windows import EventTimeSessionWindows
from ...api.windows.time_windows import GlobalWindows
from ...api.windows.triggers import CountTrigger, PurgingTrigger
from .cases import CONDITIONS, Case, Windows
from .comparing import plain
from .folds import Record, extreme, fold, in_order

Bounds = tuple[int | None, int | None]
END_OF_TIME = 2**63 - 1


@dataclass
class Firing:
    """One result of a window: its rows come out together."""

    key: tuple[Any, ...]
    bounds: Bounds
    rows: list[tuple[Any, ...]]


@dataclass
class WindowModel:
    """`add` and `advance` in the order of the script; then `firings` and `late` are complete."""

    case: Case
    firings: list[Firing] = field(default_factory=list)
    late: list[Record] = field(default_factory=list)
    watermark: int = -(2**63)
    _held: dict[Any, dict[Bounds, list[Record]]] = field(default_factory=dict)
    _keys: dict[Any, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def operation(self) -> Windows:
        assert isinstance(self.case.operation, Windows)
        return self.case.operation

    def add(self, record: Record) -> None:
        values = tuple(record[name] for name in self.case.key)
        key = tuple(map(plain, values))
        self._keys.setdefault(key, values)
        windows = self._held.setdefault(key, {})
        match self.operation.assigner:
            case CountTumblingWindowAssigner() | CountSlidingWindowAssigner() | GlobalWindows():
                self._count(key, windows, record)
            case EventTimeSessionWindows(gap):
                self._session(key, windows, record, gap)
            case _:
                self._aligned(key, windows, record)

    def advance(self, watermark: int) -> None:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        if not self.operation.assigner.is_event_time():
            return
        for key, windows in self._held.items():
            for bounds in sorted(windows):
                if before < _end(bounds) - 1 <= watermark:
                    self._fire(key, bounds, windows[bounds])
                if self._over(bounds):
                    del windows[bounds]

    def _over(self, bounds: Bounds) -> bool:
        return _end(bounds) - 1 + self.operation.lateness <= self.watermark

    def _aligned(self, key: Any, windows: Any, record: Record) -> None:
        ts = record["ts"]
        found = self.operation.assigner.windows_at(ts)  # type: ignore[attr-defined]
        alive = [b for b in ((w.start, w.end) for w in found) if not self._over(b)]
        for bounds in sorted(alive):
            windows.setdefault(bounds, []).append(record)
            if bounds[1] - 1 <= self.watermark:
                self._fire(key, bounds, windows[bounds])
        if not alive and ts + self.operation.lateness <= self.watermark:
            self.late.append(record)

    def _session(self, key: Any, windows: Any, record: Record, gap: int) -> None:
        start, end = record["ts"], record["ts"] + gap
        touched = [b for b in windows if b[0] <= end and start <= b[1]]
        bounds = min([start, *(b[0] for b in touched)]), max([end, *(b[1] for b in touched)])
        if self._over(bounds):
            self.late.append(record)
            return
        merged = [r for b in touched for r in windows.pop(b)] + [record]
        windows[bounds] = sorted(merged, key=lambda r: int(r["n"]))
        if bounds[1] - 1 <= self.watermark:
            self._fire(key, bounds, windows[bounds])

    def _count(self, key: Any, windows: Any, record: Record) -> None:
        """All records of the key are under one entry; `size` and `slide` say which fire."""
        records = windows.setdefault((None, None), [])
        records.append(record)
        size, slide, purge = counting(self.operation)
        over = len(records) - size
        if over >= 0 and over % slide == 0:
            self._fire(key, (None, None), records[over:] if purge else records)

    def _fire(self, key: Any, bounds: Bounds, records: list[Record]) -> None:
        rows = [(*row, *rest) for row, rest in self._results(self._keys[key], bounds, records)]
        self.firings.append(Firing(key, bounds, rows))

    def _results(self, key: Any, bounds: Bounds, records: list[Record]) -> list[Any]:
        case = self.case
        match self.operation.what:
            case "aggregate":
                return [((*key, *bounds), folded(case, records))]
            case "extreme":
                chosen = self._extremes(records)
                return [(tuple(r.values()), bounds) for r in chosen]
            case _:
                best = in_order(records, case.order)[: case.n]
                ranked = [
                    (bounds, ()) if case.rank is None else (bounds, (place,))
                    for place, _ in enumerate(best, 1)
                ]
                return [
                    (tuple(r.values()), (*b, *p)) for r, (b, p) in zip(best, ranked, strict=True)
                ]

    def _extremes(self, records: list[Record]) -> list[Record]:
        seen = [r for r in records if r[self.case.field] is not None]
        values = [r[self.case.field] for r in seen]
        best = extreme(values, self.case.largest)
        if best is None:
            return []
        if not self.case.ties:
            return [seen[best]]
        return [r for r, v in zip(seen, values, strict=True) if plain(v) == plain(values[best])]


def counting(operation: Windows) -> tuple[int, int, bool]:
    """Size, slide and whether a window starts anew."""
    match operation.assigner:
        case CountTumblingWindowAssigner(size):
            return size, size, True
        case CountSlidingWindowAssigner(size, slide):
            return size, slide, True
    trigger = operation.trigger
    purging = isinstance(trigger, PurgingTrigger)
    counting = trigger.nested_trigger if isinstance(trigger, PurgingTrigger) else trigger
    assert isinstance(counting, CountTrigger)
    return counting.window_size, counting.window_size, purging


def folded(case: Case, records: list[Record]) -> tuple[Any, ...]:
    """The case's aggregates."""
    return tuple(
        fold(aggregate, records, None if name is None else CONDITIONS[name][1])
        for aggregate, name in case.aggregates.values()
    )


def _end(bounds: Bounds) -> int:
    assert bounds[1] is not None
    return bounds[1]
