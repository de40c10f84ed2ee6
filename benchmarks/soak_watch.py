"""What processes and folders take while `soak` runs, and whether that stays as it is."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import Final, Self

import psutil
from strom.core.failure_text import described

Figures = dict[str, float]

TITLES: Final = MappingProxyType(
    {
        "ray::TaskActor": "task",
        "ray::JobCoordinator": "coordinator",
        "gcs/gcs_server": "gcs",
        "raylet/raylet": "raylet",
        "log_monitor": "log_monitor",
    }
)
"""Roles, by what the title of a process has in it; others are Ray's."""

ITSELF: Final = "driver"

EVERY_S: Final = 2.0

BOUNDS: Final = MappingProxyType(
    {
        "spare_processes": (0.25, 8.0),
        "processes": (0.25, 2.0),
        "rss_mb": (0.15, 24.0),
        "monitor_handles": (0.0, 200.0),
        "handles": (0.15, 8.0),
        "threads": (0.15, 6.0),
        "files": (0.25, 16.0),
        "files_each": (0.25, 3.0),
        "mb": (0.25, 8.0),
    }
)
"""By the end of a figure's name: how much more the last third of the time may have than the second,
as a part of that, and beyond it. Spare processes are those of tasks that are about to start; and
Ray's (2.60) monitor of logs holds up to 200 of processes that are gone."""


def own_processes() -> dict[str, list[psutil.Process]]:
    """Those that this one has started, and they in turn, by role, and in each by id; and itself."""
    me = psutil.Process()
    found: dict[str, list[psutil.Process]] = {ITSELF: [me]}
    for process in sorted(me.children(recursive=True), key=lambda one: one.pid):
        try:
            title = " ".join(process.cmdline())
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
        except psutil.Error:
            continue
        role = next((role for part, role in TITLES.items() if part in title), "ray")
        found.setdefault(role, []).append(process)
    return found


def figures_of(processes: Mapping[str, Iterable[psutil.Process]]) -> Figures:
    """How many there are of each role, and the most that one of them has."""
    found: Figures = {}
    for role, ones in processes.items():
        taken = [one for process in ones if (one := _taken(process))]
        found[f"{role}_processes"] = len(taken)
        for name in taken[0] if taken else ():
            found[f"{role}_{name}"] = max(one[name] for one in taken)
    return found


def _taken(process: psutil.Process) -> Figures:
    """None, if it is gone."""
    try:
        with process.oneshot():
            return {
                "rss_mb": round(process.memory_info().rss / 2**20, 1),
                "handles": process.num_fds(),
                "threads": process.num_threads(),
            }
    except psutil.Error:
        return {}


def folder_figures(name: str, folders: Iterable[Path]) -> Figures:
    """How many files are in them, and how large these are."""
    sizes = [size for folder in folders for path in files_in(folder) for size in _size(path)]
    return {f"{name}_files": len(sizes), f"{name}_mb": round(sum(sizes) / 2**20, 2)}


def files_in(folder: Path) -> Iterator[Path]:
    """At any depth, while others come and go."""
    for inside, _, names in os.walk(folder):
        for name in names:
            yield Path(inside, name)


def _size(path: Path) -> tuple[int, ...]:
    """None, if it is gone."""
    try:
        return (path.stat().st_size,)
    except OSError:
        return ()


@dataclass(frozen=True)
class Sample:
    at: float
    figures: Figures


@dataclass(frozen=True)
class Flatness:
    """Medians of the second and the last third; `flat`: the last is within the bound."""

    second: float
    last: float
    bound: float

    @property
    def flat(self) -> bool:
        return self.last <= self.bound


def flatness(samples: Sequence[Sample]) -> dict[str, Flatness]:
    """By figure, of those that both thirds have. Thirds of the time from the first sample to the
    last."""
    if not samples:
        return {}
    start, end = samples[0].at, samples[-1].at
    third = (end - start) / 3
    second = [one.figures for one in samples if start + third <= one.at < end - third]
    last = [one.figures for one in samples if one.at >= end - third]
    names = sorted({name for one in second for name in one} & {n for one in last for n in one})
    found = {}
    for name in names:
        before, after = (
            statistics.median([one[name] for one in part if name in one]) for part in (second, last)
        )
        relative, beyond = next(b for end_, b in BOUNDS.items() if name.endswith(f"_{end_}"))
        found[name] = Flatness(before, after, round(before * (1 + relative) + beyond, 2))
    return found


def all_flat(found: Mapping[str, Flatness]) -> bool:
    """Of nothing that was watched nobody can say so."""
    return bool(found) and all(one.flat for one in found.values())


class Watch:
    """Takes a sample every so often, on a thread of its own, while the block lasts."""

    def __init__(self, take: Callable[[], Figures], also: Callable[[], None]) -> None:
        """`also`: is called as often, and may wait. What fails is said on stderr, and is called
        again."""
        self.samples: list[Sample] = []
        self._take = take
        self._over = Event()
        self._threads = [
            Thread(target=self._again, args=(one,), name="strom-soak-watch", daemon=True)
            for one in (self._sample, also)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10.0)

    def _again(self, call: Callable[[], None]) -> None:
        while not self._over.wait(EVERY_S):
            try:
                call()
            except Exception as error:  # the job is harmed, and so may be what is asked of it
                print(f"not watched: {described(error)}", file=sys.stderr, flush=True)

    def _sample(self) -> None:
        self.samples.append(Sample(time.time(), self._take()))
