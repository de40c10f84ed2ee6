"""The metric groups of one operator's subtask, over the operator's own context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import ConfigurationError
from ..base import Metrics, OperatorContext
from ..user_metrics import UserDistribution, UserMeter, Variables


class MetricCounter:
    """One named counter of the operator's subtask."""

    __slots__ = ("_metrics", "_name")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._name = name

    def inc(self, n: int = 1) -> None:
        self._metrics.count(self._name, n)

    def dec(self, n: int = 1) -> None:
        self._metrics.count(self._name, -n)

    def get_count(self) -> int:
        return self._metrics.get_count(self._name)


class UnreportedCounter:
    """A counter whose name another kind of metric has."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class OperatorMetricGroup:
    """`groups`: the names below the operator's; `logical`: the same without values of variables."""

    __slots__ = ("_ctx", "_groups", "_logical", "_variables")

    def __init__(
        self,
        ctx: OperatorContext,
        groups: tuple[str, ...] = (),
        logical: tuple[str, ...] = (),
        variables: Variables = (),
    ) -> None:
        self._ctx = ctx
        self._groups = groups
        self._logical = logical
        self._variables = variables

    def add_group(self, name: str, extra: str | None = None) -> OperatorMetricGroup:
        """See `api.functions.metrics.MetricGroup`."""
        name = _text(self._ctx, "add_group", name)
        groups, logical, variables = (*self._groups, name), (*self._logical, name), self._variables
        if extra is not None:
            extra = _text(self._ctx, "add_group", extra)
            groups, variables = (*groups, extra), (*variables, (name, extra))
        return OperatorMetricGroup(self._ctx, groups, logical, variables)

    def counter(self, name: str) -> MetricCounter | UnreportedCounter:
        """The counter `name`; asked for twice, the same count."""
        identifier, scope = self._names("counter", name)
        if not self._ctx.user_metrics.counter(identifier, scope, self._ctx.name):
            return UnreportedCounter()
        self._ctx.metrics.count(identifier, 0)
        return MetricCounter(self._ctx.metrics, identifier)

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        if not callable(obj):
            raise ConfigurationError(
                f"operator '{self._ctx.name}': gauge '{name}' needs a function without arguments, "
                f"got {obj!r}"
            )
        identifier, scope = self._names("gauge", name)
        self._ctx.user_metrics.gauge(identifier, scope, self._ctx.name, obj)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> UserMeter:
        if not time_span_in_seconds > 0:
            raise ConfigurationError(
                f"operator '{self._ctx.name}': the time span of meter '{name}' must be positive, "
                f"is {time_span_in_seconds!r}"
            )
        identifier, scope = self._names("meter", name)
        now_s = self._ctx.clock.monotonic()
        registry = self._ctx.user_metrics
        return registry.meter(identifier, scope, self._ctx.name, time_span_in_seconds, now_s)

    def distribution(self, name: str) -> UserDistribution:
        identifier, scope = self._names("distribution", name)
        return self._ctx.user_metrics.distribution(identifier, scope, self._ctx.name)

    def get_scope_components(self) -> list[str]:
        return [self._ctx.name, *self._groups]

    def get_all_variables(self) -> dict[str, Any]:
        ctx = self._ctx
        return {
            "<job_id>": ctx.job_id,
            "<job_name>": ctx.job_name,
            "<operator_id>": str(ctx.operator_id),
            "<operator_name>": ctx.name,
            "<subtask_index>": str(ctx.subtask),
            **dict(self._variables),
        }

    def get_metric_identifier(self, metric_name: str) -> str:
        return ".".join((*self.get_scope_components(), metric_name))

    def _names(self, kind: str, name: str) -> tuple[str, tuple[str, Variables]]:
        name = _text(self._ctx, kind, name)
        logical = ".".join((*self._logical, name))
        return ".".join((*self._groups, name)), (logical, self._variables)


def _text(ctx: OperatorContext, method: str, name: Any) -> str:
    """Numbers are taken as names, as in `add_group("shard", 7)`."""
    if isinstance(name, int) or (isinstance(name, str) and name):
        return str(name)
    raise ConfigurationError(
        f"operator '{ctx.name}': {method}: a metric's name must be a text, is {name!r}"
    )
