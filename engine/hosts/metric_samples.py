"""A job's figures as samples for reporters: a name, labels, a value, subtask by subtask.

Names are Flink's behind their scope, as its Prometheus reporter makes them: `job_numRestarts`,
`task_busyTimeMsPerSecond`, `operator_numRecordsIn`, `operator_<groups>_<name>`. Values of variables
(`add_group(name, extra)`) are labels, not parts of names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...operators.user_metrics import QUANTILES, merged_distribution
from ..coordinator.job_state import JobState
from ..graph.model import JobGraph
from .flink_names import job_figures, operator_figures, task_figures
from .job_metrics import summarise

_log = logging.getLogger("strom")

PREFIX = "strom_"
"""What reporters put before the names."""

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """One figure of one subtask, or of the job. `labels` in order of their names."""

    name: str
    labels: Labels
    value: float


def samples_of(state: JobState, job: JobGraph, runtime_ms: float) -> list[Sample]:
    """All that is known; no two have the same name and labels."""
    return list(_distinct(_samples(state, job, runtime_ms)))


def _samples(state: JobState, job: JobGraph, runtime_ms: float) -> Iterator[Sample]:
    whole = {"job_id": state.job_id, "job_name": state.name}
    yield from _plain("job", job_figures(summarise(state, job, runtime_ms)), whole)
    vertices = {vertex.id: vertex for vertex in job.vertices}
    operators = {o.operator_id: o.name for vertex in job.vertices for o in vertex.operators}
    for task, report in sorted(state.metrics.items()):
        vertex = vertices[task.vertex]
        place = whole | {"subtask_index": str(task.subtask)}
        labels = place | {"task_id": str(vertex.id), "task_name": vertex.name}
        yield from _plain("task", task_figures(report), labels)
        for operator in vertex.operators:
            figures = report.get("operators", {}).get(operator.operator_id)
            if figures is not None:
                names = {"operator_id": str(operator.operator_id), "operator_name": operator.name}
                yield from _of_operator(figures, place | names)
                yield from _latencies(figures, place | names, operators)


def _of_operator(figures: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Sample]:
    yield from _plain("operator", operator_figures(figures), labels)
    scopes = figures.get("scopes", {})
    gauges = figures["gauges"] | figures.get("user_gauges", {})
    meters = {name: meter["rate"] for name, meter in figures.get("meters", {}).items()}
    for identifier, value in (figures["counters"] | gauges | meters).items():
        name, own = _scoped(identifier, scopes, labels)
        yield from _plain("operator", {name: value}, own)
    for identifier, report in figures.get("distributions", {}).items():
        name, own = _scoped(identifier, scopes, labels)
        yield from _distribution(name, report, own)


def _latencies(
    figures: Mapping[str, Any], labels: Mapping[str, str], names: Mapping[Any, str]
) -> Iterator[Sample]:
    for source, report in figures.get("latencies", {}).items():
        own = {**labels, "source_id": str(source), "source_name": names[source]}
        yield from _distribution("latency", report, own)


def _distribution(name: str, report: dict[str, Any], labels: Mapping[str, str]) -> Iterator[Sample]:
    known = merged_distribution([report])
    for figure in ("count", "sum", "min", "max", "mean"):
        yield from _plain("operator", {f"{name}_{figure}": known[figure]}, labels)
    for quantile in QUANTILES:
        at = known[f"p{quantile * 100:g}"]
        yield from _plain("operator", {name: at}, {**labels, "quantile": str(quantile)})


def _scoped(
    identifier: str, scopes: Mapping[str, Any], labels: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """A metric's name without the values of variables, and its labels. strom's own win."""
    if identifier not in scopes:
        return identifier, labels
    logical, variables = scopes[identifier]
    return logical, {**{_clean(name): value for name, value in variables}, **labels}


def _plain(scope: str, figures: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Sample]:
    """Texts, and what is not known, are no samples."""
    ordered = tuple(sorted(labels.items()))
    for name, value in figures.items():
        if isinstance(value, (bool, int, float)):
            yield Sample(f"{scope}_{_clean(name)}", ordered, float(value))


def _clean(name: str) -> str:
    return _FORBIDDEN.sub("_", name)


_clashes: set[str] = set()
"""Names of which it was said that they clash."""


def _distinct(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Two names may become one where only letters, digits and `_` are allowed: the first counts."""
    seen: set[tuple[str, Labels]] = set()
    for sample in samples:
        if (sample.name, sample.labels) in seen:
            if sample.name not in _clashes:
                _clashes.add(sample.name)
                _log.warning(
                    "two metrics are called '%s' where only letters, digits and _ are allowed in "
                    "names: one is not reported; give it another name",
                    sample.name,
                )
            continue
        seen.add((sample.name, sample.labels))
        yield sample
