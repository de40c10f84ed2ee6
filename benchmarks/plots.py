"""The report's pictures. matplotlib (the extra `bench`) is loaded when the first is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Line, Lines

WIDTH, HEIGHT = 9.0, 4.5
SYSTEM = "flink-java"
"""The peer that bars are drawn for."""


def pictures(lines: Lines, beside: dict[tuple[str, str], Line], folder: Path) -> dict[str, str]:
    """Draw what there are lines for: file names by section, `section:part` where it has several."""
    drawn: dict[str, str] = {}
    theirs = {query: line for (system, query), line in beside.items() if system == SYSTEM}
    if lines.throughput or lines.whole:
        for part, field, label, factor in (
            ("events", "events_per_s", "M events/s", 1e-6),
            ("cpu", "cpu_s_per_m_events", "CPU s per M events", 1.0),
            ("memory", "peak_rss_mb", "peak RSS, MB", 1.0),
        ):
            series = {
                "strom, one source": _of(lines.like_for_like, field, factor),
                SYSTEM: _of(theirs, field, factor),
                "strom, a source per kind": _of(lines.per_kind, field, factor),
            }
            ours = list({**lines.throughput, **lines.whole})
            drawn[f"throughput:{part}"] = _bars(folder / f"{part}.png", series, label, ours)
    both = {n: line for n, line in lines.throughput.items() if n in lines.checkpointed}
    if both:
        series = {
            "off": _of(both, "events_per_s", 1e-6),
            "on": _of(lines.checkpointed, "events_per_s", 1e-6),
        }
        drawn["checkpoints"] = _bars(folder / "checkpoints.png", series, "M events/s", list(both))
    if lines.latency:
        drawn["latency"] = _latency(folder / "latency.png", lines)
    if lines.scale:
        drawn["scale"] = _scale(folder / "scale.png", lines)
    return drawn


def _of(lines: dict[str, Line], field: str, factor: float) -> dict[str, float]:
    return {name: line[field] * factor for name, line in lines.items() if line.get(field)}


def _figure() -> tuple[Any, Any]:
    """A figure that needs no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SystemExit(
            "the report's pictures need matplotlib: pip install 'strom[bench]'"
        ) from error
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    return figure, axes


def _save(figure: Any, path: Path) -> str:
    figure.savefig(path, dpi=120)
    return path.name


def _bars(path: Path, series: dict[str, dict[str, float]], label: str, names: Sequence[str]) -> str:
    """Groups of bars: one group for each name."""
    shown = {s: v for s, v in series.items() if any(name in v for name in names)}
    figure, axes = _figure()
    width = 0.8 / len(shown)
    for i, (system, values) in enumerate(shown.items()):
        at = [x + i * width for x, name in enumerate(names) if name in values]
        axes.bar(at, [values[n] for n in names if n in values], width, label=system)
    middle = 0.4 - width / 2
    axes.set_xticks(
        [x + middle for x in range(len(names))],
        names,
        rotation=60,
        ha="right",
        rotation_mode="anchor",
    )
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    return _save(figure, path)


def _latency(path: Path, lines: Lines) -> str:
    figure, axes = _figure()
    for timeout in sorted({timeout for _, timeout in lines.latency}):
        rates = sorted(rate for rate, t in lines.latency if t == timeout)
        for name in ("p50_ms", "p99_ms", "p999_ms"):
            delays = [lines.latency[rate, timeout][name] for rate in rates]
            text = f"{name.removesuffix('_ms')}, timeout {timeout} ms"
            axes.plot(rates, delays, marker="o", label=text)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("records/s")
    axes.set_ylabel("ms")
    axes.legend(frameon=False)
    return _save(figure, path)


def _scale(path: Path, lines: Lines) -> str:
    figure, axes = _figure()
    for name, by_tasks in lines.scale.items():
        tasks = sorted(by_tasks)
        axes.plot(tasks, [by_tasks[n]["speedup"] for n in tasks], marker="o", label=name)
    axes.set_xlabel("tasks")
    axes.set_ylabel("speedup")
    axes.legend(frameon=False)
    return _save(figure, path)


def history(lines: Sequence[Line], file: str) -> None:
    """How each benchmark's ratio to the raw pass went with the commits, its first one being 1.
    `lines`: as `history.kept` has them."""
    figure, axes = _figure()
    commits = list(dict.fromkeys(line["commit"] for line in lines))
    for name in dict.fromkeys(line["benchmark"] for line in lines):
        course = [line for line in lines if line["benchmark"] == name]
        at = [commits.index(line["commit"]) for line in course]
        parts = [line["ratio"] / course[0]["ratio"] for line in course]
        axes.plot(at, parts, marker="o", label=name)
    axes.set_xticks(range(len(commits)), [commit[:7] for commit in commits], rotation=60)
    axes.set_ylabel("speed, of its first")
    if commits:
        axes.legend(frameon=False, ncols=3, fontsize="small")
    _save(figure, Path(file))
