"""This tree beside another revision of it: the same benchmarks of both, in turns, several rounds.

Which of the two begins changes with each round, so that neither always finds the machine warm. The
figures are medians; `speed` and `memory` are ratios, after by before. Above 1, `speed` is better
and `memory` worse. What is slower or larger by more than `TOLERANCE` is flagged.
"""

from __future__ import annotations

import json
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .nexmark.registry import NEXMARK
from .trees import Tree, base_and_here
from .workloads import WORKLOADS

TOLERANCE = 0.05
WHOLE = "whole:"
"""Ahead of a Nexmark query's name: with --whole-stream."""

LATENCY_RATE = 50_000


@dataclass(frozen=True)
class Figure:
    """A field of a benchmark's line that says how fast it was."""

    field: str
    more_is_better: bool

    def speed(self, before: float, after: float) -> float | None:
        up, down = (after, before) if self.more_is_better else (before, after)
        return round(up / down, 3) if down else None


EVENTS_PER_S = Figure("events_per_s", True)
FIGURES = {"latency": Figure("p50_ms", False), "recovery": Figure("median_s", False)}
"""Of what is not a workload."""

BESIDE = ("peak_rss_mb", "cpu_s_per_m_events", "p99_ms", "checkpoint_ms")
"""Fields whose medians are given too, where there are any."""

GROUPS = {
    "nexmark": tuple(NEXMARK),
    "whole": tuple(f"{WHOLE}{name}" for name in NEXMARK),
    "state": ("kstate", "kprocess", "wordcount", "wordcount_columns"),
    "times": tuple(FIGURES),
}
"""Names that stand for several."""


def chosen(names: str) -> list[str]:
    """The benchmarks that the text stands for, each once. Ends the program if one is unknown."""
    found: list[str] = []
    for name in names.split(","):
        found += GROUPS.get(name, (name,)) if name != "all" else sum(GROUPS.values(), ())
    known = {*WORKLOADS, *FIGURES, *GROUPS["whole"]}
    unknown = [name for name in found if name not in known]
    if unknown:
        raise SystemExit(
            f"no benchmark {unknown}: there are all, {', '.join(GROUPS)}, {', '.join(WORKLOADS)}, "
            f"{', '.join(FIGURES)}, and {WHOLE} ahead of a Nexmark query"
        )
    return list(dict.fromkeys(found))


def arguments_of(name: str, options: Namespace) -> list[str]:
    """What `python -m benchmarks` is given."""
    common = ["--parallelism", str(options.parallelism), "--host", options.host]
    if name == "latency":
        return [name, "--rate", str(LATENCY_RATE), "--seconds", str(options.seconds), *common]
    if name == "recovery":
        return [name, "--kills", str(options.kills), *common]
    events = ["--events", str(options.events)] if options.events else []
    whole = ["--whole-stream"] if name.startswith(WHOLE) else []
    return [name.removeprefix(WHOLE), *events, *whole, *common]


def measure(names: Sequence[str], options: Namespace) -> Iterator[dict[str, Any]]:
    """A line per benchmark. Raises NoTree."""
    with base_and_here(options.base) as (base, here):
        for name in names:
            arguments = arguments_of(name, options)
            taken = in_turns(base, here, arguments, options.rounds, options.limit)
            yield line_of(name, base.revision, *taken)


def in_turns(
    base: Tree, here: Tree, arguments: Sequence[str], rounds: int, limit_s: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Their lines, in the order of the rounds."""
    taken: dict[Tree, list[dict[str, Any]]] = {base: [], here: []}
    for number in range(rounds):
        for tree in (base, here) if number % 2 == 0 else (here, base):
            taken[tree] += tree.lines(arguments, limit_s)
    return taken[base], taken[here]


def line_of(
    name: str, revision: str, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> dict[str, Any]:
    """Both sides' medians and what they come to."""
    figure = FIGURES.get(name, EVENTS_PER_S)
    line = {"name": "before-after", "benchmark": name, "base": revision, "figure": figure.field}
    errors = [one["error"] for one in (*before, *after) if "error" in one]
    if errors:
        return {**line, "error": errors[0]}
    old, new = medians(figure, before), medians(figure, after)
    speed = figure.speed(old[figure.field], new[figure.field])
    memory = None
    if old.get("peak_rss_mb"):
        memory = round(new["peak_rss_mb"] / old["peak_rss_mb"], 3)
    flags = ["slower"] if speed is not None and speed < 1 - TOLERANCE else []
    flags += ["memory"] if memory is not None and memory > 1 + TOLERANCE else []
    events = {"events": after[0]["events"]} if "events" in after[0] else {}
    return {
        **line, **events, "speed": speed, "memory": memory, "flags": flags,
        "before": old, "after": new,
    }  # fmt: skip


def medians(figure: Figure, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a side's rounds, and all of its figures."""
    found: dict[str, Any] = {}
    for field in (figure.field, *BESIDE):
        values = [line[field] for line in lines if line.get(field) is not None]
        if values:
            found[field] = _rounded(statistics.median(values))
    return {**found, "runs": [line[figure.field] for line in lines]}


def _rounded(value: float) -> float:
    return round(value) if value >= 1000 else round(value, 3)


def kept(file: str, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Appends the lines to those in the file, if it is there; the latest of each benchmark."""
    path = Path(file)
    old = path.read_text().splitlines() if path.exists() else []
    path.write_text("".join(line + "\n" for line in [*old, *map(json.dumps, lines)]))
    latest = {line["benchmark"]: line for line in [*map(json.loads, old), *lines]}
    return list(latest.values())


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    rows = [
        "| benchmark | figure | before | after | speed | memory before, MB | after | memory | |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for line in lines:
        if "error" in line:
            said = " ".join(line["error"].split()).replace("|", "/")
            rows.append(f"| {line['benchmark']} | {said[:200]} | | | | | | | failed |")
            continue
        field, sides = line["figure"], (line["before"], line["after"])
        speeds = [f"{side[field]:,}" for side in sides]
        memory = [f"{side['peak_rss_mb']:,.0f}" if "peak_rss_mb" in side else "" for side in sides]
        ratio = "" if line["memory"] is None else f"{line['memory']:.2f}"
        speed = "" if line["speed"] is None else f"{line['speed']:.2f}"
        cells = [line["benchmark"], field, *speeds, speed, *memory, ratio, ", ".join(line["flags"])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)
