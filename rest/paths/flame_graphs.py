"""What the processes of a vertex do with their time, sampled by py-spy from outside for a moment.

The system has to let the server's user do so (root, or `kernel.yama.ptrace_scope` 0). Processes of
other machines are looked into by Ray tasks that are pinned there; without Ray only its own are.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from typing_extensions import TypedDict

from ...engine.hosts.job_view import TaskView
from ..catalogs.catalog import Refused, Unavailable

Kind = Literal["FULL", "ON_CPU"]
"""FULL: also what waits."""

SAMPLE_S: Final = 2
RATE: Final = 50
KEPT_S: Final = 10.0
"""So long a graph is shown to others who ask."""

MOST_PROCESSES: Final = 8
LONGEST_S: Final = 20.0

Process = tuple[str, int]
"""Its machine and id."""

Stack = tuple[tuple[str, ...], int]
"""Frames, the outermost first, and in how many samples."""


class Frame(TypedDict):
    name: str
    value: int
    children: list[Any]


class FlameGraph(TypedDict):
    endTimestamp: int
    data: Frame


class FlameGraphs:
    """From any thread; one sample is taken at a time."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[float, FlameGraph]] = {}
        self._sampling = threading.Lock()

    def of(self, tasks: Sequence[TaskView], kind: Kind) -> FlameGraph:
        """Of the processes that run these. Refused where they cannot be looked into."""
        processes = _processes(tasks)
        asked = (kind, *processes)
        if not self._sampling.acquire(timeout=LONGEST_S):
            raise Unavailable("other flame graphs are being made: ask again")
        try:
            now = time.monotonic()
            self._kept = {k: v for k, v in self._kept.items() if now - v[0] < KEPT_S}
            if asked not in self._kept:
                stacks = _sampled_everywhere(processes, kind)
                made: FlameGraph = {
                    "endTimestamp": time.time_ns() // 1_000_000,
                    "data": tree_of(stacks),
                }
                self._kept[asked] = (time.monotonic(), made)
            return self._kept[asked][1]
        finally:
            self._sampling.release()


def tree_of(stacks: Iterable[Stack]) -> Frame:
    root = _frame("root")
    for frames, count in stacks:
        node = root
        node["value"] += count
        for name in frames:
            children: list[Frame] = node["children"]
            node = next((one for one in children if one["name"] == name), _frame(name))
            if node["value"] == 0:
                children.append(node)
            node["value"] += count
    return root


def _frame(name: str) -> Frame:
    return {"name": name, "value": 0, "children": []}


def stacks_in(text: str) -> list[Stack]:
    """Of py-spy's raw format: `frame;frame;frame count` lines."""
    found: list[Stack] = []
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit() and int(count) > 0:
            found.append((tuple(frames.split(";")), int(count)))
    return found


def _processes(tasks: Sequence[TaskView]) -> list[Process]:
    """Those that run these; where there are many, of the busiest tasks."""
    running = [task for task in tasks if task["status"] == "RUNNING" and task["pid"] is not None]
    if not running:
        raise Refused("none of its subtasks runs")
    running.sort(key=lambda task: -(task["metrics"].get("busyTimeMsPerSecond") or 0.0))
    found = dict.fromkeys((str(task["host"]), int(task["pid"] or 0)) for task in running)
    return sorted(list(found)[:MOST_PROCESSES])


def _sampled_everywhere(processes: Sequence[Process], kind: Kind) -> list[Stack]:
    """All at the same time, each on its machine."""
    here = socket.gethostname()
    by_host: dict[str, list[int]] = {}
    for host, pid in processes:
        by_host.setdefault(host, []).append(pid)
    near = by_host.pop(here, [])
    asked = [_begun_on(host, pids, kind) for host, pids in by_host.items()]
    stacks = _sampled(near, kind) if near else []
    for answer in asked:
        stacks += answer()
    return stacks


def _begun_on(host: str, pids: list[int], kind: Kind) -> Callable[[], list[Stack]]:
    """Have another machine sample its processes; what is given back waits for it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        here = socket.gethostname()
        raise Refused(f"it runs on {host}: only processes of {here} can be looked into from here")
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"] and node["NodeManagerHostname"] == host]
    if not alive:
        raise Refused(f"it runs on {host}: the cluster has no such machine now")
    pinned = NodeAffinitySchedulingStrategy(alive[0]["NodeID"], soft=False)
    task = _sampled_there().options(num_cpus=0, max_retries=0, scheduling_strategy=pinned)
    begun = task.remote(pids, kind)

    def answer() -> list[Stack]:
        try:
            found: list[Stack] = ray.get(begun, timeout=2 * LONGEST_S)
        except RayTaskError as error:
            raise Refused(f"on {host}: {error.cause}") from None
        except RayError as error:
            with suppress(Exception):  # it is not needed any more
                ray.cancel(begun)
            raise Unavailable(f"{host} does not answer: {type(error).__name__}") from None
        return found

    return answer


@cache
def _sampled_there() -> Any:
    """One function to Ray, which keeps each that it is given for as long as the cluster lives."""
    import ray

    return ray.remote(_sampled)


def _sampled(pids: Sequence[int], kind: Kind) -> list[Stack]:
    spy = shutil.which("py-spy") or str(Path(sys.executable).parent / "py-spy")
    more = ["--idle"] if kind == "FULL" else []
    words = [
        "--duration",
        str(SAMPLE_S),
        "--rate",
        str(RATE),
        "--format",
        "raw",
        "--nonblocking",
        "--function",
    ]
    try:
        running = [
            subprocess.Popen(
                [spy, "record", "--pid", str(pid), *words, *more, "--output", "/dev/stdout"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for pid in pids
        ]
    except OSError as error:
        raise Refused(
            f"py-spy cannot be run ({error}): pip install py-spy, or 'strom[profile]'"
        ) from None
    stacks: list[Stack] = []
    errors: list[str] = []
    deadline = time.monotonic() + LONGEST_S
    for one in running:
        try:
            text, said = one.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            text, said = one.communicate()
        stacks += stacks_in(text)
        errors += said.strip().splitlines()[-1:] if one.returncode != 0 else []
    if errors and not stacks:
        raise Refused(f"py-spy cannot look into the process: {_why(errors[0])}")
    return stacks


def _why(said: str) -> str:
    if "ermission" in said or "not permitted" in said or "sudo" in said:
        return (
            "the system does not permit it; py-spy needs to be root, or the capability SYS_PTRACE"
        )
    return said.removeprefix("Error: ")
