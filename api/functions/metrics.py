"""Metrics that user functions register, under PyFlink's names.

    group = runtime_context.get_metrics_group()        # of one operator's subtask
    group.counter("seen").inc()
    group.add_group("shop", "berlin").meter("orders").mark_event()

A metric is named `<operator>.<groups>.<name>`. Asked for twice under one name and kind it is the
same metric. Metrics are no state: they start anew with each attempt of the job. They have no locks:
use them on the thread that the function is called on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

GaugeValue = bool | int | float | str
"""What a gauge may give; numpy's numbers are taken, too."""


@runtime_checkable
class Counter(Protocol):
    """A number that goes up and down."""

    def inc(self, n: int = 1) -> None: ...
    def dec(self, n: int = 1) -> None: ...
    def get_count(self) -> int: ...


@runtime_checkable
class Meter(Protocol):
    """How often something happens."""

    def mark_event(self, value: int = 1) -> None:
        """It has happened so many times."""
        ...

    def get_count(self) -> int: ...

    def get_rate(self) -> float:
        """Events per second over the meter's time span, as of the last report of metrics."""
        ...


@runtime_checkable
class Distribution(Protocol):
    """What is known of many numbers without keeping them: how many, their sum, least, greatest and
    mean, and quantiles of the latest ones."""

    def update(self, value: float) -> None: ...


@runtime_checkable
class MetricGroup(Protocol):
    """Where the metrics of one operator's subtask are registered."""

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group within this one. With `extra`, `name` is a variable and `extra` its value: both
        become a part of the metrics' names, and reporters get them as a label."""
        ...

    def counter(self, name: str) -> Counter: ...

    def gauge(self, name: str, obj: Callable[[], GaugeValue]) -> None:
        """`obj` is called on the thread of its function (the task's, or an event loop) whenever
        metrics are reported, so it must be quick. What it raises fails nothing: it is logged once,
        and there is no value then."""
        ...

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Its rate is over the last `time_span_in_seconds`."""
        ...

    def distribution(self, name: str) -> Distribution: ...

    def get_scope_components(self) -> list[str]:
        """The operator's name and the groups."""
        ...

    def get_all_variables(self) -> dict[str, Any]:
        """What labels the metrics of this group: `<job_id>`, `<job_name>`, `<operator_id>`,
        `<operator_name>` and `<subtask_index>`, and the user's variables."""
        ...

    def get_metric_identifier(self, metric_name: str) -> str:
        """`<operator>.<groups>.<metric_name>`"""
        ...
