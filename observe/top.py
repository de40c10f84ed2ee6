"""What `strom top` shows of one job: rates and lag of operators, and how busy their tasks are.

Reads nothing but `JobClient.metrics()`. Shares of time are means over the subtasks, with the
busiest beside them, so that skew is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .live import MAX_WATERMARK, Rates, format_watermark

SHARES = {
    "busy": "busyTimeMsPerSecond",
    "held": "backPressuredTimeMsPerSecond",
    "idle": "idleTimeMsPerSecond",
}
"""What a task does with its time, and what Flink calls it. `held`: by those behind it."""

SKEWED, NAMED = 1.5, 3
"""From which skew on it is said, with so many keys."""

HOT, WARM = 0.8, 0.5
"""Shares of a busiest task that are shown in red, in yellow."""


def figures(metrics: Mapping[str, Any], rates: Rates, now_s: float, wall_ms: int) -> dict[str, Any]:
    """As plain data: the job's own figures, `operators` and `vertices`, in the graph's order.
    `rates`: that of the last call; `now_s`: of the clock they go by; `wall_ms`: the time of day, of
    which lag is told."""
    return {
        "state": str(metrics["state"]),
        "restarts": metrics["restarts"],
        "last_failure": metrics["last_failure"],
        "checkpoints": dict(metrics["checkpoints"]),
        "in_flight_bytes": metrics["exchange"]["in_flight_bytes"],
        "operators": [
            {
                "name": operator["name"],
                "parallelism": operator["parallelism"],
                "records_in": operator["records_in"],
                "records_out": operator["records_out"],
                "in_per_s": rates.update(f"{operator['id']} in", operator["records_in"], now_s),
                "out_per_s": rates.update(f"{operator['id']} out", operator["records_out"], now_s),
                "watermark": operator["watermark"],
                "lag_ms": _lag(operator["watermark"], wall_ms),
            }
            for operator in metrics["operators"]
        ],
        "vertices": _vertices(metrics["tasks"]),
        "keys": [
            {name: one[name] for name in ("name", "skew", "hot")} for one in metrics.get("keys", [])
        ],
    }


def _lag(watermark: int | None, wall_ms: int) -> int | None:
    """How far event time is behind the clock; None where nothing says, or all has come."""
    ended = watermark is None or watermark == MAX_WATERMARK
    return None if watermark is None or ended else wall_ms - watermark


def _vertices(tasks: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_vertex: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        by_vertex.setdefault(task["vertex"], []).append(task)
    return [_vertex(subtasks) for subtasks in by_vertex.values()]


def _vertex(subtasks: list[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": subtasks[0]["name"], "tasks": len(subtasks)}
    states = sorted({str(task["state"]) for task in subtasks})
    found["states"] = states
    for share, figure in SHARES.items():
        each = [task.get("times", {}).get(figure, 0.0) / 1000 for task in subtasks]
        found[share] = sum(each) / len(each)
        found[f"{share}_most"] = max(each)
    found["rss_bytes"] = sum(task.get("peak_rss_bytes") or 0 for task in subtasks)
    return found


def render(found: Mapping[str, Any], title: str) -> Group:
    """`figures` for a terminal."""
    operators = Table(title=Text(title), title_justify="left", header_style="bold")
    operators.add_column("operator", overflow="fold")
    for column in ("tasks", "in/s", "out/s", "watermark", "lag"):
        operators.add_column(column, justify="right")
    for one in found["operators"]:
        operators.add_row(
            Text(one["name"]),
            str(one["parallelism"]),
            f"{one['in_per_s']:,.0f}",
            f"{one['out_per_s']:,.0f}",
            format_watermark(one["watermark"]),
            "-" if one["lag_ms"] is None else duration(one["lag_ms"]),
        )
    vertices = Table(header_style="bold")
    vertices.add_column("task", overflow="fold")
    for column in ("subtasks", "busy", "held", "idle", "RSS at most"):
        vertices.add_column(column, justify="right")
    vertices.add_column("state")
    for one in found["vertices"]:
        vertices.add_row(
            Text(one["name"]),
            str(one["tasks"]),
            *(share(one, name) for name in SHARES),
            f"{one['rss_bytes'] / 1e6:,.0f} MB",
            ", ".join(one["states"]),
        )
    skewed = [Text(skew(one), style="yellow") for one in found["keys"] if one["skew"] >= SKEWED]
    return Group(operators, vertices, *skewed, line(found))


def skew(keys: Mapping[str, Any]) -> str:
    """What is said of a vertex, one of whose subtasks gets more records by key than the others."""
    said = f"{keys['name']}: its busiest subtask gets {keys['skew']:.1f} times the mean"
    hot = ", ".join(f"{one['key']} ({one['share']:.0%})" for one in keys["hot"][:NAMED])
    return f"{said}; most frequent keys: {hot}" if hot else said


def share(vertex: Mapping[str, Any], name: str) -> Text:
    """One of `SHARES`, with that of the busiest subtask."""
    mean, most = vertex[name], vertex[f"{name}_most"]
    style = "" if name == "idle" else "red" if most >= HOT else "yellow" if most >= WARM else ""
    busiest = "" if vertex["tasks"] == 1 else f" ({most:.0%})"
    return Text(f"{mean:.0%}{busiest}", style=style)


def duration(ms: int) -> str:
    if abs(ms) < 10_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(abs(ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if ms < 0 else ""
    return f"{sign}{hours}:{minutes:02}:{seconds:02}"


def line(found: Mapping[str, Any]) -> Text:
    """What is said of the job as a whole."""
    checkpoints = found["checkpoints"]
    took = checkpoints["last_duration_ms"]
    size = checkpoints["last_size"]
    parts = [
        ("state ", found["state"]),
        ("   restarts ", found["restarts"]),
        ("   checkpoints ", checkpoints["completed"]),
        ("   failed ", checkpoints["failed"]),
        ("   took ", "-" if took is None else f"{took} ms"),
        ("   bytes ", "-" if size is None else f"{size:,}"),
        ("   in flight ", f"{found['in_flight_bytes'] / 1e6:.2f} MB"),
    ]
    said = Text.assemble(*[part for name, value in parts for part in ((name, "dim"), str(value))])
    if found["last_failure"]:
        first = str(found["last_failure"]).splitlines()[0]
        said.append(f"\nlast failure: {first}", style="red")
    return said
