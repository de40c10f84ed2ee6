"""Waiting for jobs on Ray, and for Ray, whose processes are killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

START_S: Final = 120.0
"""What a job may take to start, or to come back."""


def awaited(find: Callable[[], T], otherwise: str, every: float, seconds: float = START_S) -> T:
    """What `find` finds, once that is true. TimeoutError says `otherwise`."""
    deadline = time.monotonic() + seconds
    while not (found := find()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {seconds:g} s")
        time.sleep(every)
    return found


def await_running(client: Any) -> None:
    """All of its tasks."""

    def runs() -> bool:
        view = client.view()
        return view["status"] == "RUNNING" and all(t["pid"] is not None for t in view["tasks"])

    awaited(runs, "the job does not run", 0.1)


def await_known_dead(nodes: Any, node: str) -> float:
    """When Ray took it for that."""
    awaited(lambda: nodes.is_known_dead(node), "Ray does not take a dead node for dead", 0.05)
    return time.time()
