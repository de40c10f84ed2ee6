"""A job's figures as samples for reporters: a name, labels, a value, subtask by subtask.

Names are Flink's behind their scope, as its Prometheus reporter makes them: `job_numRestarts`,
`task_busyTimeMsPerSecond`, `operator_numRecordsIn`, `operator_<groups>_<name>`. Values of variables
(`add_group(name, extra)`) are labels, not parts of names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...operators.user_metrics import QUANTILES, merged_distribution
from ..coordinator.job_state import JobState
from ..graph.model import JobGraph
from .flink_names import job_figures, operator_figures, task_figures

_log = logging.getLogger("strom")

PREFIX = "strom_"
"""What reporters put before the names."""

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_]")

_DISTRIBUTION: Final = ("count", "sum", "min", "max", "mean")

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One figure of one subtask, or of the job. `labels` in order of their names."""

    name: str
    labels: Labels
    value: float


def samples_of(state: JobState, job: JobGraph, runtime_ms: float) -> Iterator[Sample]:
    """All that is known, one by one: of a large job they are hundreds of thousands, and whoever
    reads them keeps what he needs. No two have the same name and labels."""
    whole = {"job_id": state.job_id, "job_name": state.name}
    yield from _Place("job", whole).plain(job_figures(state, runtime_ms))
    vertices = {vertex.id: vertex for vertex in job.vertices}
    operators = {o.operator_id: o.name for vertex in job.vertices for o in vertex.operators}
    for task, report in sorted(state.metrics.items()):
        vertex = vertices[task.vertex]
        place = whole | {"subtask_index": str(task.subtask)}
        labels = place | {"task_id": str(vertex.id), "task_name": vertex.name}
        yield from _Place("task", labels).plain(task_figures(report))
        for operator in vertex.operators:
            figures = report.get("operators", {}).get(operator.operator_id)
            if figures is not None:
                names = {"operator_id": str(operator.operator_id), "operator_name": operator.name}
                of_operator = _Place("operator", place | names)
                yield from of_operator.figures(figures)
                yield from of_operator.latencies(figures, operators)


class _Place:
    """What the samples of one operator's subtask, of a task or of the job have in common. Those of
    two places differ in their labels: only within one can two be the same, as two names may become
    one where only letters, digits and `_` are allowed. The first counts."""

    def __init__(self, scope: str, labels: Mapping[str, str]) -> None:
        self._scope = scope
        self._labels = labels
        self._ordered = _ordered(labels)
        self._names: dict[Labels, set[str]] = {}
        """Of the samples so far, by their labels."""

    def plain(
        self, figures: Mapping[str, Any], more: Mapping[str, str] | None = None
    ) -> Iterator[Sample]:
        """Texts, and what is not known, are no samples. `more`: labels beside, of which the place's
        own win."""
        labels = _ordered({**more, **self._labels}) if more else self._ordered
        names = self._names.setdefault(labels, set())
        for identifier, value in figures.items():
            if isinstance(value, (bool, int, float)):
                name = _named(self._scope, identifier)
                if name in names:
                    _say_clash(name)
                else:
                    names.add(name)
                    yield Sample(name, labels, float(value))

    def figures(self, figures: Mapping[str, Any]) -> Iterator[Sample]:
        """All of an operator but its latencies."""
        yield from self.plain(operator_figures(figures))
        scopes = figures.get("scopes", {})
        gauges = figures["gauges"] | figures.get("user_gauges", {})
        meters = {name: meter["rate"] for name, meter in figures.get("meters", {}).items()}
        for identifier, value in (figures["counters"] | gauges | meters).items():
            name, variables = _scoped(identifier, scopes)
            yield from self.plain({name: value}, variables)
        for identifier, report in figures.get("distributions", {}).items():
            name, variables = _scoped(identifier, scopes)
            yield from self._distribution(name, report, variables)

    def latencies(self, figures: Mapping[str, Any], names: Mapping[Any, str]) -> Iterator[Sample]:
        """`names`: of operators."""
        for source, report in figures.get("latencies", {}).items():
            own = {"source_id": str(source), "source_name": names[source]}
            yield from self._distribution("latency", report, own)

    def _distribution(
        self, name: str, report: dict[str, Any], more: Mapping[str, str]
    ) -> Iterator[Sample]:
        known = merged_distribution([report])
        yield from self.plain({f"{name}_{figure}": known[figure] for figure in _DISTRIBUTION}, more)
        for quantile in QUANTILES:
            at = known[f"p{quantile * 100:g}"]
            yield from self.plain({name: at}, {**more, "quantile": str(quantile)})


def _scoped(identifier: str, scopes: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """A metric's name without the values of variables, and these."""
    if identifier not in scopes:
        return identifier, {}
    logical, variables = scopes[identifier]
    return logical, {_clean(name): value for name, value in variables}


def _ordered(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


@lru_cache(maxsize=4096)
def _named(scope: str, name: str) -> str:
    """Every subtask has the same few names."""
    return f"{scope}_{_clean(name)}"


def _clean(name: str) -> str:
    return _FORBIDDEN.sub("_", name)


_clashes: set[str] = set()
"""Names of which it was said that they clash."""


def _say_clash(name: str) -> None:
    if name not in _clashes:
        _clashes.add(name)
        _log.warning(
            "two metrics are called '%s' where only letters, digits and _ are allowed in names: "
            "one is not reported; give it another name",
            name,
        )
