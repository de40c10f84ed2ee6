"""What user code of one operator's subtask has registered: metrics, read when a report is due, and
accumulators.

Nothing here costs anything per record but what user code calls itself: a counter or meter adds to a
number, a distribution also remembers the value. Rates, quantiles and gauges are worked out when
metrics are reported. All of it happens on the thread that the user code runs on, so nothing needs a
lock: that is the task's, or where an operator has another one, that (`Elsewhere`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar

import numpy as np

from ..api.functions.accumulators import Accumulator
from ..core.failure_text import is_for_the_program, with_place

_log = logging.getLogger("strom")

T = TypeVar("T")

LATEST = 512
"""The quantiles of a distribution are of so many latest values per subtask."""

QUANTILES = (0.5, 0.75, 0.95, 0.99)

Variables = tuple[tuple[str, str], ...]
"""Names and values that groups were given with `extra`."""

Scope = tuple[str, Variables]
"""Of a metric: its name without the variables' values, dotted, and the variables."""


class Rate:
    """Events per second over the last `span_s` seconds, or since the start if that is less. Looked
    at now and then; it keeps about 60 counts."""

    __slots__ = ("_samples", "_span_s")

    def __init__(self, span_s: float, now_s: float) -> None:
        self._span_s = span_s
        self._samples = deque([(now_s, 0)])
        """(time, count), in order; at most the first is older than the span."""

    def at(self, now_s: float, count: int) -> float:
        """The rate now that so many events have happened in all. What began less than a second ago
        counts as a second."""
        samples, span = self._samples, self._span_s
        while len(samples) > 1 and samples[1][0] <= now_s - span:
            samples.popleft()
        since, before = samples[0]
        if now_s - samples[-1][0] >= span / 60:
            samples.append((now_s, count))
        return (count - before) / max(1.0, now_s - since)


class UserMeter:
    """See `api.functions.metrics.Meter`."""

    __slots__ = ("_count", "_over", "_rate")

    def __init__(self, span_s: float, now_s: float) -> None:
        self._count = 0
        self._over = Rate(span_s, now_s)
        self._rate = 0.0

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count

    def get_rate(self) -> float:
        return self._rate

    def report(self, now_s: float) -> dict[str, Any]:
        self._rate = self._over.at(now_s, self._count)
        return {"count": plain(self._count), "rate": float(self._rate)}


class UserDistribution:
    """See `api.functions.metrics.Distribution`."""

    __slots__ = ("_count", "_latest", "_max", "_min", "_sum")

    def __init__(self) -> None:
        self._count = 0
        self._sum: Any = 0
        self._min: Any = None
        self._max: Any = None
        self._latest: deque[Any] = deque(maxlen=LATEST)

    def update(self, value: float) -> None:
        self._sum += value
        self._count += 1
        self._latest.append(value)
        if self._min is None:
            self._min = self._max = value
        elif value < self._min:
            self._min = value
        elif value > self._max:
            self._max = value

    def report(self) -> dict[str, Any]:
        return {
            "count": self._count,
            "sum": plain(self._sum),
            "min": plain(self._min),
            "max": plain(self._max),
            "latest": [float(value) for value in self._latest],
        }


def merged_distribution(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several subtasks' distributions together; quantiles are of the latest values
    of each."""
    count = sum(report["count"] for report in reports)
    total = sum(report["sum"] for report in reports)
    some = [report for report in reports if report["count"]]
    latest = [value for report in some for value in report["latest"]]
    figures: dict[str, Any] = {
        "count": count,
        "sum": total,
        "min": min((report["min"] for report in some), default=None),
        "max": max((report["max"] for report in some), default=None),
        "mean": total / count if count else None,
    }
    values = np.quantile(latest, QUANTILES).tolist() if latest else [None] * len(QUANTILES)
    return figures | {f"p{q * 100:g}": value for q, value in zip(QUANTILES, values, strict=True)}


def plain(number: Any) -> Any:
    """A user may count in any kind of number; a report holds Python's own."""
    if number is None:
        return None
    return int(number) if isinstance(number, Integral) else float(number)


class _Gauge:
    """A function that gives a value, and whether it was said that it does not."""

    __slots__ = ("obj", "said")

    def __init__(self, obj: Callable[[], Any]) -> None:
        self.obj = obj
        self.said = False


class Elsewhere(Protocol):
    """The thread that an operator's user code runs on, if it is not the task's."""

    def told(self, what: str, make: Callable[[], T], exact: bool) -> T | None:
        """What `make` gave there lately, or raised; None: nothing yet. Asked for on the task's
        thread, which waits a little for what it gives now only if it is to be `exact`. `what`:
        the name of what is made."""
        ...


class UserMetrics:
    """The registry of one operator's subtask in one attempt; used on one thread only, whose figures
    `told` gives to the task's.

    Invariant: an identifier is in `_kinds` exactly if it is registered, as that kind alone.
    """

    def __init__(self) -> None:
        self.elsewhere: Elsewhere | None = None
        """Set by an operator that has a thread of its own for user code, while it opens."""
        self.accumulators: dict[str, Accumulator[Any, Any]] = {}
        """By name, in order of registration."""
        self._kinds: dict[str, str] = {}
        self._scopes: dict[str, Scope] = {}
        """Of metrics in groups."""
        self._gauges: dict[str, _Gauge] = {}
        self._meters: dict[str, UserMeter] = {}
        self._distributions: dict[str, UserDistribution] = {}

    def counter(self, identifier: str, scope: Scope, operator: str) -> bool:
        """Whether a counter of this name is reported, as `operator`'s own counters are."""
        return self._takes("counter", identifier, scope, operator)

    def gauge(self, identifier: str, scope: Scope, operator: str, obj: Callable[[], Any]) -> None:
        """Registered twice, the later function counts."""
        if self._takes("gauge", identifier, scope, operator):
            self._gauges[identifier] = _Gauge(obj)

    def meter(
        self, identifier: str, scope: Scope, operator: str, span_s: float, now_s: float
    ) -> UserMeter:
        if not self._takes("meter", identifier, scope, operator):
            return UserMeter(span_s, now_s)
        if identifier not in self._meters:
            self._meters[identifier] = UserMeter(span_s, now_s)
        return self._meters[identifier]

    def distribution(self, identifier: str, scope: Scope, operator: str) -> UserDistribution:
        if not self._takes("distribution", identifier, scope, operator):
            return UserDistribution()
        return self._distributions.setdefault(identifier, UserDistribution())

    def told(self, what: str, make: Callable[[], T], exact: bool) -> T | None:
        """On the task's thread: what `make`, which looks into this registry, gives; see
        `Elsewhere`."""
        return make() if self.elsewhere is None else self.elsewhere.told(what, make, exact)

    def report(self, operator: str, subtask: int, now_s: float) -> dict[str, Any]:
        """Plain data, empty if nothing is registered; asks the gauges."""
        if not self._kinds:
            return {}
        gauges = {}
        for identifier, gauge in self._gauges.items():
            value = _asked(gauge, identifier, operator, subtask)
            if value is not None:
                gauges[identifier] = value
        return {
            "user_gauges": gauges,
            "meters": {name: meter.report(now_s) for name, meter in self._meters.items()},
            "distributions": {name: one.report() for name, one in self._distributions.items()},
            "scopes": dict(self._scopes),
        }

    def validate(self) -> None:
        """Assert the invariants."""
        held: dict[str, dict[str, Any]] = {
            "gauge": self._gauges,
            "meter": self._meters,
            "distribution": self._distributions,
        }
        for kind, metrics in held.items():
            assert set(metrics) == {name for name, one in self._kinds.items() if one == kind}
        assert set(self._scopes) <= set(self._kinds)

    def _takes(self, kind: str, identifier: str, scope: Scope, operator: str) -> bool:
        """Whether the name is free, or of this kind already. If not it is said, and the new metric
        works, but is not reported."""
        known = self._kinds.setdefault(identifier, kind)
        if known != kind:
            _log.warning(
                "operator '%s' registers a %s '%s', which is a %s already: it is not reported; "
                "give it another name",
                operator,
                kind,
                identifier,
                known,
            )
            return False
        if scope[1]:
            self._scopes[identifier] = scope
        return True


def _asked(gauge: _Gauge, identifier: str, operator: str, subtask: int) -> Any:
    """The gauge's value; None if it gives none, which is said once."""
    try:
        value = gauge.obj()
        if isinstance(value, (bool, str)):
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, Real):
            return plain(value)
        why = f"gave {value!r:.200}, which is neither a number nor a text"
    except BaseException as error:
        if is_for_the_program(error):
            raise
        why = f"failed: {with_place(error)}"
    if not gauge.said:
        gauge.said = True
        _log.warning(
            "operator '%s', subtask %s: the gauge '%s' %s; it has no value while that is so",
            operator,
            subtask,
            identifier,
            why,
        )
    return None
