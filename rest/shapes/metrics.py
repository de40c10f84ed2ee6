"""Metrics in the shapes of Flink's REST: names where none are asked for, else values, as text.

Names are Flink's (`engine.hosts.task_figures`), those of a vertex with the subtask in front, as in
`0.Source__Collection.numRecordsOut`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NotRequired

from typing_extensions import TypedDict

from ...engine.hosts.job_view import JobView, TaskView

AGGREGATIONS: Final = ("min", "max", "avg", "sum", "skew")


class Metric(TypedDict):
    id: str
    value: NotRequired[str]


class Aggregated(TypedDict):
    id: str
    min: NotRequired[float]
    max: NotRequired[float]
    avg: NotRequired[float]
    sum: NotRequired[float]
    skew: NotRequired[float]


def metrics_of(figures: Mapping[str, Any], wanted: str | None) -> list[Metric]:
    """`wanted`: names, with commas between them; None: tell which there are. Unknown ones, and
    those without a value, are left out."""
    if wanted is None:
        return [{"id": name} for name in sorted(figures)]
    return [
        {"id": name, "value": _text(figures[name])}
        for name in names_in(wanted)
        if figures.get(name) is not None
    ]


def names_in(wanted: str) -> list[str]:
    return [name for name in wanted.split(",") if name]


def job_metrics(view: JobView) -> dict[str, Any]:
    return dict(view["metrics"])


def task_metrics(task: TaskView) -> dict[str, Any]:
    """Of one subtask."""
    return dict(task["metrics"])


def vertex_metrics(tasks: Iterable[TaskView]) -> dict[str, Any]:
    """Of all subtasks, each with its number in front."""
    return {
        f"{task['subtask']}.{name}": value
        for task in tasks
        for name, value in task_metrics(task).items()
    }


def aggregated(
    tasks: Sequence[Mapping[str, Any]], wanted: str | None, kinds: Sequence[str]
) -> list[Aggregated]:
    """Numbers over several subtasks, or jobs. `kinds`: of AGGREGATIONS."""
    if wanted is None:
        return [{"id": name} for name in sorted({name for task in tasks for name in task})]
    found: list[Aggregated] = []
    for name in names_in(wanted):
        values = [
            float(value)
            for task in tasks
            if isinstance(value := task.get(name), (int, float)) and not isinstance(value, bool)
        ]
        if values:
            figures = _aggregates(values)
            one: Aggregated = {"id": name}
            one.update({kind: figures[kind] for kind in kinds})  # type: ignore[typeddict-item]
            found.append(one)
    return found


def _aggregates(values: list[float]) -> dict[str, float]:
    return {
        "min": min(values),
        "max": max(values),
        "avg": sum(values) / len(values),
        "sum": sum(values),
        "skew": 100.0 * (skew_of(values) or 0.0),
    }


def skew_of(values: Sequence[float]) -> float | None:
    """How far they are from their mean, on average, as a share of it, 1 at most: as Flink has it,
    which says so in percent. None: their mean is 0, or there are none."""
    mean = sum(values) / len(values) if values else 0
    if mean == 0:
        return None
    return min(1.0, sum(abs(value - mean) for value in values) / len(values) / abs(mean))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
