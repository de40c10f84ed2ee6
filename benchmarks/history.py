"""How fast each commit is, kept in a file: medians of ratios to a raw pass of the same minutes.

A rate says nothing without the machine and the hour that it was measured in. So each round begins
and ends with a raw pass (`raw_pass`), and what counts of a run is its rate divided by the mean of
these two. A commit is run from a checkout of its own, with its own benchmarks; the raw pass is
always this tree's.
"""

from __future__ import annotations

import json
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .before_after import FIGURES, arguments_of, chosen
from .raw_pass import VERSION, raw_pass
from .trees import NoTree, Tree, checked_out, commits, committed_at, is_changed

Line = dict[str, Any]

KEPT = "benchmarks/history.jsonl"

HISTORY = ("whole:q0", "whole:q3", "q5", "q8", "q9", "q11", "q15", "kstate", "wordcount_columns")
"""A query of each kind that costs differently."""

LOSS = 0.1
"""Of its speed: what a regression takes at least."""

RUNS = 3
"""So many measurements on both sides of one."""


def measure(options: Namespace) -> Iterator[Line]:
    """A line per commit and benchmark. Raises NoTree."""
    names = chosen(options.benchmarks)
    if times := [name for name in names if name in FIGURES]:
        raise SystemExit(f"history keeps rates, and {', '.join(times)} has none")
    found = commits(options.commits)
    if options.commits is None and is_changed():
        raise NoTree("this tree has changes that are not committed: commit them, or name --commits")
    if ".." in (options.commits or ""):
        found = found[:: -options.every][::-1]  # the newest is always among them
    for commit in found:
        at = committed_at(commit)
        try:
            with checked_out(commit) as tree:
                for line in lines_of(tree, names, options, raw_pass):
                    yield {"name": "history", "commit": commit[:12], "committed": at, **line}
        except NoTree as error:
            if len(found) == 1:
                raise
            yield {"name": "history", "commit": commit[:12], "committed": at, "error": str(error)}


def lines_of(
    tree: Tree, names: Sequence[str], options: Namespace, raw: Callable[[int], float]
) -> Iterator[Line]:
    """A line per benchmark, once all rounds are over."""
    taken: dict[str, list[Line]] = {name: [] for name in names}
    for _ in range(options.rounds):
        before = raw(options.parallelism)
        made = [(name, tree.lines(arguments_of(name, options), options.limit)) for name in names]
        between = (before + raw(options.parallelism)) / 2
        for name, lines in made:
            taken[name] += [{**line, "raw": between} for line in lines]
    for name, lines in taken.items():
        yield line_of(name, lines)


def line_of(name: str, lines: Sequence[Line]) -> Line:
    """What is kept of a benchmark's rounds."""
    about = {"benchmark": name, "raw_version": VERSION}
    errors = [line["error"] for line in lines if "error" in line]
    if errors or not lines:
        return {**about, "error": errors[0] if errors else "it printed nothing"}
    ratios = [line["events_per_s"] / line["raw"] for line in lines]
    return {
        **about,
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "events_per_s": round(statistics.median(line["events_per_s"] for line in lines)),
        "raw_per_s": round(statistics.median(line["raw"] for line in lines)),
        "parallelism": lines[0].get("parallelism"),
        "events": lines[0].get("events"),
    }


# --- what is kept -------------------------------------------------------------------------------


def keep(file: str, line: Line) -> None:
    """Append a line. What failed is none."""
    if "error" not in line:
        with Path(file).open("a") as kept:
            kept.write(json.dumps(line) + "\n")


def kept(file: str) -> list[Line]:
    """In the order of the commits, several of one in that of the file; only what may be compared
    with what is measured now."""
    path = Path(file)
    texts = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in map(json.loads, texts) if line["raw_version"] == VERSION]
    return sorted(lines, key=lambda line: line["committed"])


@dataclass(frozen=True)
class Regression:
    """`commit`: the first that was slower; `since`: the one that was measured before it, so that
    those between may be to blame, too. Ratios are medians of up to `RUNS` measurements."""

    benchmark: str
    commit: str
    since: str
    before: float
    after: float

    def as_json(self) -> Line:
        loss = round(1 - self.after / self.before, 3)
        return {"name": "history", "regression": self.benchmark, **vars(self), "loss": loss}


def regressions(lines: Sequence[Line]) -> list[Regression]:
    """Where a benchmark became slower by `LOSS` or more and stayed so: each of the next `RUNS`
    measurements is below what the `RUNS` before came to. `lines`: as `kept` has them."""
    courses: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        like = line["benchmark"], line.get("parallelism"), line.get("events")
        courses.setdefault(like, []).append(line)
    return [found for course in courses.values() for found in _falls(course)]


def _falls(course: Sequence[Line]) -> Iterator[Regression]:
    ratios = [line["ratio"] for line in course]
    at = 1
    while at + RUNS <= len(ratios):
        before = statistics.median(ratios[max(0, at - RUNS) : at])
        behind = ratios[at : at + RUNS]
        if max(behind) > before * (1 - LOSS):
            at += 1
            continue
        names = course[at]["benchmark"], course[at]["commit"], course[at - 1]["commit"]
        yield Regression(*names, before, statistics.median(behind))
        at += RUNS  # from then on that is what it does
