"""A report from the lines of the other commands: report.md and a picture per section.

Lines are told apart by their fields, so that files of several commands may be mixed. Of several
lines of one workload the last counts. The peers' figures (`peers.jsonl`) are medians of three runs
on another day on one machine with two cores: beside ours they show orders of magnitude.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]

PEERS = Path(__file__).with_name("peers.jsonl")
BESIDE = ("flink-java", "bytewax", "spark", "pyflink", "pathway-python")
"""The peers that a table has columns for, as far as they have figures."""

ONE_SOURCE = "one source, events/s"
PER_KIND = "a source per kind, events/s"


@dataclass
class Lines:
    """The last line of each kind and workload."""

    throughput: dict[str, Line] = field(default_factory=dict)
    """Without checkpoints, by workload; where there are several parallelisms, the last."""
    whole: dict[str, Line] = field(default_factory=dict)
    """The same of queries that read one stream of all kinds of events."""
    checkpointed: dict[str, Line] = field(default_factory=dict)
    scale: dict[str, dict[int, Line]] = field(default_factory=dict)
    """By workload and number of tasks."""
    latency: dict[tuple[int, int], Line] = field(default_factory=dict)
    """By rate and buffer timeout."""
    overload: list[Line] = field(default_factory=list)
    compare: dict[tuple[str, str], Line] = field(default_factory=dict)
    """By peer and the peer's query."""

    @property
    def like_for_like(self) -> dict[str, Line]:
        """What may stand beside a peer: one source of all that there is in the stream."""
        return {
            **{n: one for n, one in self.throughput.items() if not one.get("kinds")},
            **self.whole,
        }

    @property
    def per_kind(self) -> dict[str, Line]:
        """Of queries whose sources make one kind of events each, and only those that are read."""
        return {n: one for n, one in self.throughput.items() if one.get("kinds")}

    def add(self, line: Line) -> None:
        match line:
            case {"name": "latency"}:
                self.latency[line["rate"], line["buffer_timeout_ms"]] = line
            case {"name": "overload"}:
                self.overload.append(line)
            case {"name": "compare", "ratio": _}:
                self.compare[line["peer"], line["query"]] = line
            case {"command": "scale"}:
                self.scale.setdefault(line["name"], {})[line["tasks"]] = line
            case {"events_per_s": _, "checkpoint_interval_s": None, "kinds": "all"}:
                self.whole[line["name"]] = line
            case {"events_per_s": _, "checkpoint_interval_s": None}:
                self.throughput[line["name"]] = line
            case {"events_per_s": _, "checkpoint_interval_s": _}:
                self.checkpointed[line["name"]] = line


def read(files: Iterable[str]) -> Lines:
    """Lines that are no JSON objects (a log's) are passed over."""
    found = Lines()
    for file in files:
        for text in Path(file).read_text().splitlines():
            if text.startswith("{"):
                found.add(json.loads(text))
    return found


def peers() -> dict[tuple[str, str], Line]:
    """By system and our name of the query."""
    lines = [json.loads(text) for text in PEERS.read_text().splitlines()]
    return {(line["system"], _our_name(line)): line for line in lines}


def _our_name(line: Line) -> str:
    """The workload that a peer's query is set beside: Flink counts words without Python."""
    name: str = line["query"]
    return "wordcount_columns" if (line["system"], name) == ("flink-java", "wordcount") else name


def write(folder: str, files: Sequence[str]) -> list[str]:
    """Write the report into the folder; the paths of what was written."""
    from .plots import pictures

    lines, beside = read(files), peers()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    drawn = pictures(lines, beside, target)
    text = "\n\n".join(["# Benchmarks", *sections(lines, beside, drawn)])
    (target / "report.md").write_text(text + "\n")
    return [str(target / "report.md"), *(str(target / name) for name in drawn.values())]


def sections(lines: Lines, beside: dict[tuple[str, str], Line], drawn: dict[str, str]) -> list[str]:
    """Each section that there are lines for: heading, table, picture."""
    tables = {
        "throughput": ("Throughput, CPU and memory", throughput_table(lines, beside)),
        "checkpoints": ("Checkpoints on and off", checkpoint_table(lines)),
        "latency": ("Latency against load", latency_table(lines)),
        "overload": ("Overload", overload_table(lines)),
        "scale": ("From 1 task to more", scale_table(lines)),
        "compare": ("In turns with peers", compare_table(lines)),
    }
    found = []
    for key, (heading, table) in tables.items():
        if table:
            names = [name for about, name in drawn.items() if about.partition(":")[0] == key]
            shown = [f"![{heading}]({name})" for name in names]
            found.append("\n\n".join([f"## {heading}", table, *shown]))
    return found


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; "" without rows. The first column is text, the others are numbers."""
    if not rows:
        return ""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in (header, ruler, *rows))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def throughput_table(lines: Lines, beside: dict[tuple[str, str], Line]) -> str:
    """The peers stand behind what is like for like with them."""
    fair, per_kind = lines.like_for_like, lines.per_kind
    names = list({**lines.throughput, **lines.whole})
    systems = [s for s in BESIDE if any((s, name) in beside for name in names)]
    header = ["workload", ONE_SOURCE, *systems]
    header += [PER_KIND] if per_kind else []
    header += ["CPU s per M", "MB", "strings", "pruned"]
    rows = []
    for name in names:
        theirs = [beside.get((system, name), {}).get("events_per_s") for system in systems]
        kinds = [per_kind.get(name, {}).get("events_per_s")] if per_kind else []
        line = lines.throughput.get(name) or lines.whole[name]
        own = (line["cpu_s_per_m_events"], line["peak_rss_mb"], line["strings"], line["pruned"])
        rows.append([name, fair.get(name, {}).get("events_per_s"), *theirs, *kinds, *own])
    return markdown(header, rows)


def checkpoint_table(lines: Lines) -> str:
    rows = []
    for name, line in lines.checkpointed.items():
        off = lines.throughput.get(name)
        share = None if off is None else round(line["events_per_s"] / off["events_per_s"], 2)
        last = (line["checkpoint_interval_s"], line["checkpoints"], line["checkpoint_ms"])
        rows.append([name, off and off["events_per_s"], line["events_per_s"], share, *last])
    header = ("workload", "off, events/s", "on, events/s", "on/off", "every s", "taken", "last ms")
    return markdown(header, rows)


def latency_table(lines: Lines) -> str:
    fields = ("rate", "buffer_timeout_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
    header = ("records/s", "buffer timeout ms", "p50 ms", "p99 ms", "p99.9 ms", "max ms")
    return markdown(
        header, [[line[f] for f in fields] for _, line in sorted(lines.latency.items())]
    )


def overload_table(lines: Lines) -> str:
    fields = (
        "offered",
        "capacity",
        "rate",
        "before_p99_ms",
        "worst_ms",
        "recovery_s",
        "in_flight_mb",
        "in_flight_bound_mb",
        "peak_rss_mb",
    )
    return markdown(
        [f.replace("_", " ") for f in fields], [[o[f] for f in fields] for o in lines.overload]
    )


def scale_table(lines: Lines) -> str:
    tasks = sorted({n for by_tasks in lines.scale.values() for n in by_tasks})
    rows = []
    for name, by_tasks in lines.scale.items():
        rates = [by_tasks[n]["events_per_s"] if n in by_tasks else None for n in tasks]
        rows.append([name, *rates, by_tasks[max(by_tasks)]["speedup"]])
    return markdown(["workload", *(f"{n} tasks" for n in tasks), "last speedup"], rows)


def compare_table(lines: Lines) -> str:
    fields = ("strom_events_per_s", "peer_events_per_s", "ratio")
    rows = [[f"{p} {q}", *(line[f] for f in fields)] for (p, q), line in lines.compare.items()]
    return markdown(("peer and query", "strom, events/s", "peer, events/s", "ratio"), rows)
