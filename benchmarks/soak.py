"""A job that runs for minutes while its processes are killed, its storage is away and it is
rescaled: whether its output is right, and what it takes stays as it is.

Three nodes on this machine, the head among them, run the job of `soak_job` with checkpoints and
output in an object store (`soak_storage`). Faults come by a plan (`soak_plan`) until one and a half
times the time is over that the input takes; then the job has the rest of the time to end by itself.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from strom import ExternalizedCheckpointRetention, FixedDelayRestart
from strom.core.errors import StromError
from strom.testing.machines.local_nodes import LocalNodes

from .awaited import START_S, await_running, awaited
from .configured import backend
from .measure import Setting, environment
from .soak_faults import CPUS, Harm
from .soak_job import OUTPUTS, Expected, Input, build
from .soak_output import verify
from .soak_plan import Fault, Kind, faults
from .soak_storage import Storage, reachable
from .soak_watch import (
    ITSELF,
    Figures,
    Watch,
    all_flat,
    figures_of,
    files_in,
    flatness,
    folder_figures,
    own_processes,
)

FAULTY: Final = 1.5
"""For how long there are faults, in times of the input's."""

LONGEST: Final = 4.0
"""After so many times of it, and `START_S`, a job that still runs is cancelled."""

STAYS: Final = re.compile(r"/part-[^/]*$|/\.strom/owner-|/strom-logs-|/epoch-\d+(\.end)?$")
"""Files that may be there when the job is over."""

STEP_S: Final = 0.2
END_S: Final = 45.0
"""What the end of processes, actors and slots may take, once the job is over."""


@dataclass(frozen=True)
class Soak:
    """What is to be done. `every`: seconds from fault to fault; `interval`: between checkpoints."""

    given: Input
    kinds: Collection[Kind]
    every: float
    seed: int
    parallelism: int
    interval: float


class Told:
    """What a job tells of itself, over all of its coordinators, which may begin to count anew."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last: dict[str, int] = {}
        self.counts = dict.fromkeys(("completed", "failed", "restarts"), 0)
        self.coordinators: set[int] = set()
        """Their processes."""
        self.tasks = 0
        """How many it has."""

    def ask(self) -> None:
        with suppress(StromError):
            self.add(self._client.metrics())
        self.coordinators.update(one.pid for one in own_processes().get("coordinator", ()))

    def add(self, metrics: dict[str, Any]) -> None:
        told = {"restarts": metrics["restarts"], **metrics["checkpoints"]}
        self.tasks = len(metrics["tasks"])
        for name in self.counts:
            before = self._last.get(name, 0)
            self.counts[name] += told[name] - before if told[name] >= before else told[name]
            self._last[name] = told[name]


def measure_soak(soak: Soak) -> dict[str, Any]:
    """One line. This process's own Ray, if it has one, ends."""
    import ray

    ray.shutdown()
    expected = Expected.of(soak.given)
    with (
        tempfile.TemporaryDirectory(prefix="strom-bench-") as folder,
        redirect_stdout(sys.stderr),  # Ray says there which workers died
    ):
        root = Path(folder)
        with reachable(root) as storage, LocalNodes(CPUS) as nodes:
            found = _run(soak, root, storage, nodes)
            left = _left(root, nodes)
        left["of_ray"] = _others()
        verified = verify(root, expected)
    return {
        "name": "soak",
        "host": "ray",
        "state_backend": backend(),
        "seed": soak.seed,
        "rate": soak.given.rate,
        "keys": soak.given.keys,
        "parallelism": soak.parallelism,
        "records": soak.given.clicks + soak.given.prices,
        **found,
        "expected_rows": expected.rows,
        **asdict(verified),
        "right": verified.right and found["error"] is None,
        "leftovers": {name: those for name, those in left.items() if those},
    }


def _run(soak: Soak, root: Path, storage: Storage, nodes: LocalNodes) -> dict[str, Any]:
    setting = Setting("soak", soak.given.clicks, soak.parallelism, "ray", soak.interval)
    env = environment(setting, storage.url(root / "checkpoints"))
    env.set_restart_strategy(FixedDelayRestart(100_000, timedelta(milliseconds=200)))
    gone = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    env.get_checkpoint_config().set_externalized_checkpoint_retention(gone)
    build(env, soak.given, storage.url(root))
    client: Any = env.execute_async("soak")
    told = Told(client)
    harm = Harm(client, nodes, storage, lambda: told.counts["completed"])
    pool = ThreadPoolExecutor(1)
    try:
        await_running(client)
        start = time.monotonic()
        longest = timedelta(seconds=START_S + LONGEST * soak.given.seconds)
        end = pool.submit(client.get_job_execution_result, longest)
        with Watch(lambda: _figures(root, nodes, told.tasks), told.ask) as watch:
            _harm_until(end, soak, harm)
        took = time.monotonic() - start
        error = _ended(client, end, told)
        harm.end()
    finally:
        pool.shutdown(wait=False)
    flat = flatness(watch.samples)
    return {
        "seconds": round(took, 1),
        "rate_reached": round(soak.given.clicks / took),
        "error": error,
        "faults": dict(harm.done),
        "skipped": dict(harm.skipped),
        "timeline": harm.timeline,
        "restarts": told.counts["restarts"],
        "takeovers": max(0, len(told.coordinators) - 1),
        "rescales": {"done": harm.rescaled, "refused": len(harm.refused)},
        "refused": sorted({reason[:200] for reason in harm.refused}),
        "checkpoints": {name: told.counts[name] for name in ("completed", "failed")},
        "flat": all_flat(flat),
        "figures": {
            name: {"second": one.second, "last": one.last, "bound": one.bound, "flat": one.flat}
            for name, one in flat.items()
        },
    }


def _harm_until(end: Future[Any], soak: Soak, harm: Harm) -> None:
    """The plan, until the job is over."""
    plan = faults(soak.seed, soak.every, soak.kinds)
    last = FAULTY * soak.given.seconds
    start = time.monotonic()
    fault = next(plan, None)
    while not end.done():
        now = time.monotonic() - start
        if fault is not None and fault.at <= now and now < last:
            harm.do(fault, now)
            fault = _next(plan, now)
        harm.go_on(now)
        time.sleep(STEP_S)


def _next(plan: Iterable[Fault], now: float) -> Fault | None:
    """The first that is not over: what came while a node started is left out."""
    return next((fault for fault in plan if fault.at >= now), None)


def _ended(client: Any, end: Future[Any], told: Told) -> str | None:
    """Why it did not end well. The job is over when this returns."""
    try:
        told.add(end.result().metrics)
    except Exception as error:
        with suppress(Exception):
            client.cancel(timedelta(seconds=START_S))
        return f"{type(error).__name__}: {error}"
    return None


def _figures(root: Path, nodes: LocalNodes, tasks: int) -> Figures:
    """Of tasks, the processes beside those that the job has: how many it has is asked of it."""
    found = figures_of(own_processes())
    found["task_spare_processes"] = max(0.0, found.pop("task_processes", 0.0) - tasks)
    checkpoints = folder_figures("checkpoint", [root / "checkpoints"])
    # There are as many as the tasks that wrote them, of which rescales change the number.
    checkpoints["checkpoint_files_each"] = checkpoints.pop("checkpoint_files") / max(1, tasks)
    return found | checkpoints | folder_figures("temporary", nodes.temporary_folders)


def _left(root: Path, nodes: LocalNodes) -> dict[str, list[str]]:
    """What is there of the job once it is over, after `END_S` at most."""
    from ray.util import placement_group_table

    def groups() -> list[str]:
        table = placement_group_table().items()
        return [name for name, group in table if group["state"] != "REMOVED"]

    def actors() -> list[str]:
        return [actor for ones in nodes.actors("TaskActor").values() for actor in ones]

    def processes() -> list[str]:
        there = own_processes()
        return [str(one.pid) for role in ("task", "coordinator") for one in there.get(role, ())]

    with suppress(TimeoutError):
        awaited(lambda: not (groups() or actors() or processes()), "something is left", 0.5, END_S)
    return {
        "actors": actors(),
        "placement_groups": groups(),
        "processes": processes(),
        "files": _files_left(root, nodes.temporary_folders),
    }


def _files_left(root: Path, temporary: Iterable[Path]) -> list[str]:
    """Of checkpoints, of output that was not published, and temporary ones. Not logs, nor who the
    last owners of folders were: these stay."""
    folders = [root / "checkpoints", *(root / name for name in OUTPUTS), *temporary]
    found = [str(path) for folder in folders for path in files_in(folder)]
    return [path for path in found if not STAYS.search(path)]


def _others() -> list[str]:
    """Processes that this one has started and that have not ended."""
    return [
        str(one.pid) for role, ones in own_processes().items() for one in ones if role != ITSELF
    ]
