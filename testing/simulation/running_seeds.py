"""Many seeds, one after the other or in several processes."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, Final

from ...core.errors import ConfigurationError, StromError
from .case import Case
from .draws import drawn
from .random_jobs import run_random
from .running import Ran

CHUNK: Final = 250
"""Seeds that a process takes at once: at the start of each all garbage is collected."""

TIDIED: Final = 20
"""After so many cases new garbage is collected: to look for it takes as long as half a case."""

THAWED: Final = 500
"""After so many cases all garbage is collected."""


@dataclass
class Totals:
    """What many seeds came to. `violations`: the case of each that failed, and why."""

    seeds: int = 0
    steps: int = 0
    crashes: int = 0
    coordinators: int = 0
    taken_over: int = 0
    midway: int = 0
    checkpoints: int = 0
    restored: int = 0
    failed_calls: int = 0
    cut_off: int = 0
    partitions: int = 0
    rescaled: int = 0
    rescaled_in_part: int = 0
    rescaled_holding: int = 0
    dealt: int = 0
    rescaled_itself: int = 0
    shrunk: int = 0
    grown: int = 0
    failed_commits: int = 0
    put_aside_too_many: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    violations: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Those of another part."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def took(self, ran: Ran) -> None:
        """One more was as it has to be."""
        self.steps += ran.steps
        self.crashes += ran.crashed
        self.coordinators += ran.coordinators
        self.taken_over += ran.taken_over
        self.midway += ran.midway
        self.checkpoints += ran.completed
        self.restored += ran.lives - 1
        self.failed_calls += ran.failed_calls
        self.cut_off += ran.cut_off
        self.partitions += ran.partitions
        self.rescaled += ran.rescaled
        self.rescaled_in_part += ran.rescaled_in_part
        self.rescaled_holding += ran.rescaled_holding
        self.dealt += ran.dealt
        self.rescaled_itself += ran.rescaled_itself
        self.shrunk += ran.shrunk
        self.grown += ran.grown
        self.failed_commits += ran.failed_commits
        self.put_aside_too_many += ran.failed is not None

    def as_json(self, processes: int) -> dict[str, Any]:
        per_second = self.seeds / self.seconds if self.seconds else 0.0
        return {
            "seeds": self.seeds,
            "violations": len(self.violations),
            "seeds_per_second": round(per_second, 1),
            "processes": processes,
            "seeds_per_cpu_second": round(self.seeds / max(self.cpu_seconds, 1e-9), 1),
            "seconds": round(self.seconds, 1),
            "steps": self.steps,
            "tasks_crashed": self.crashes,
            "coordinators_crashed": self.coordinators,
            "tasks_taken_over": self.taken_over,
            "crashed_midway": self.midway,
            "checkpoints": self.checkpoints,
            "went_on_from_a_checkpoint": self.restored,
            "storage_calls_failed": self.failed_calls,
            "coordinators_cut_off": self.cut_off,
            "tasks_cut_off": self.partitions,
            "rescaled_while_running": self.rescaled,
            "rescaled_while_others_ran": self.rescaled_in_part,
            "rescaled_while_others_stood_still": self.rescaled_holding,
            "dealt_unevenly": self.dealt,
            "rescaled_by_themselves": self.rescaled_itself,
            "went_on_smaller": self.shrunk,
            "grew_again": self.grown,
            "commits_failed": self.failed_commits,
            "failed_by_dead_letters": self.put_aside_too_many,
            "failed": [{"replay": case, "error": why} for case, why in self.violations],
        }


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without the log lines of what is asked for, and with a collector that runs seldom: see
    `tidied`."""
    before, thresholds = logging.root.manager.disable, gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(500_000, 50, 1_000)
    try:
        yield
    finally:
        logging.disable(before)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def tidied(cases: int) -> None:
    """So many cases are over. The collector looks now and then, at what is new since the last time:
    all that was there before (modules, graphs that are kept) is not looked at until it is thawed.
    """
    if cases % TIDIED:
        return
    if cases % THAWED == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def failure_of(case: Case) -> str | None:
    """What goes wrong with a case of our topologies; None: nothing."""
    try:
        run_random(case)
    except (AssertionError, StromError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def run_cases(
    cases: Iterable[Case],
    run: Callable[[Case], Ran] = run_random,
    until: float | None = None,
    fail_fast: bool = False,
) -> Totals:
    """All of them, or those that begin before `until` (of the monotonic clock)."""
    totals, began, used = Totals(), time.monotonic(), time.process_time()
    with undisturbed():
        for case in cases:
            if until is not None and time.monotonic() > until:
                break
            tidied(totals.seeds)
            totals.seeds += 1
            try:
                totals.took(run(case))
            except ConfigurationError:
                raise  # of who asked for the case
            except (AssertionError, StromError) as error:
                totals.violations.append((str(case), f"{type(error).__name__}: {error}"))
                if fail_fast:
                    break
    totals.seconds = time.monotonic() - began
    totals.cpu_seconds = time.process_time() - used
    return totals


def _chunk(first: int, stop: int, until: float | None) -> Totals:
    return run_cases(map(drawn, range(first, stop)), until=until)


def run_seeds(first: int, seeds: int, time_s: float | None = None, processes: int = 1) -> Totals:
    """So many seeds from `first` on, or those that begin within `time_s` seconds."""
    began = time.monotonic()
    until = None if time_s is None else began + time_s
    totals = Totals()
    if processes <= 1:
        totals.add(_chunk(first, first + seeds, until))
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            size = max(1, min(CHUNK, -(-seeds // processes)))
            starts = range(first, first + seeds, size)
            ends = [min(start + size, first + seeds) for start in starts]
            for part in pool.map(_chunk, starts, ends, [until] * len(starts)):
                totals.add(part)
    totals.seconds = time.monotonic() - began
    return totals
