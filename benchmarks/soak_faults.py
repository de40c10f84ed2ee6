"""Carries out the faults of `soak`'s plan, on processes that this one has started alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import psutil
from strom.testing.machines.local_nodes import LocalNodes

from .soak_plan import Fault
from .soak_storage import Storage
from .soak_watch import own_processes

CPUS: Final = (1, 2, 2)
"""Of the nodes, as Ray counts them; the head is the first."""

REPLACED_S: Final = 8.0
"""From the death of a node to the start of another."""


class Harm:
    """What was done so far. Used from one thread."""

    def __init__(
        self, client: Any, nodes: LocalNodes, storage: Storage, completed: Callable[[], int]
    ) -> None:
        """`completed`: checkpoints of the job so far."""
        self._client = client
        self._nodes = nodes
        self._storage = storage
        self._completed = completed
        self._at_death: int | None = None
        """Checkpoints at the last death of a node."""
        self._missing: list[float] = []
        """When nodes are to start."""
        self._asked: list[Any] = []
        """Rescales that are not answered yet."""
        self.timeline: list[tuple[float, str, str]] = []
        """Of what was done: seconds, kind of fault, and what it hit."""
        self.skipped: Counter[str] = Counter()
        """Those for which there was nothing: no process of the kind, no checkpoint since the last
        death of a node."""
        self.rescaled = 0
        self.refused: list[str] = []
        """Why."""

    @property
    def done(self) -> Counter[str]:
        """By kind of fault."""
        return Counter(kind for _, kind, _ in self.timeline)

    def do(self, fault: Fault, now: float) -> None:
        match fault.kind:
            case "task" | "coordinator":
                hit = self._killed(fault.kind, fault.draw)
            case "raylet":
                hit = self._node_killed(fault.draw, now)
            case "storage":
                self._storage.go(fault.seconds)
                hit = f"for {fault.seconds:.1f} s"
            case "rescale":
                self._asked.append(self._client.rescale(fault.draw))
                hit = f"to {fault.draw}"
        if hit is None:
            self.skipped[fault.kind] += 1
        else:
            self.timeline.append((round(now, 1), fault.kind, hit))

    def go_on(self, now: float) -> None:
        """Start nodes that are missing, and hear of rescales."""
        while self._missing and self._missing[0] <= now:
            self._missing.pop(0)
            try:
                self._nodes.add(CPUS[-1])
            except Exception:  # Ray gives it half a minute, on a busy machine, too
                self._missing.append(now + REPLACED_S)
        for promise in [one for one in self._asked if one.done()]:
            self._asked.remove(promise)
            self._hear(promise)

    def end(self) -> None:
        """Hear of the rescales that nobody has answered yet."""
        for promise in self._asked:
            self._hear(promise)

    def _hear(self, promise: Any) -> None:
        try:
            promise.result(30.0)
            self.rescaled += 1
        except Exception as error:
            self.refused.append(str(error))

    def _killed(self, role: str, draw: int) -> str | None:
        there = own_processes().get(role, [])
        if not there:
            return None
        victim = there[draw % len(there)]
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            return None
        return f"process {victim.pid}"

    def _node_killed(self, draw: int, now: float) -> str | None:
        """One with tasks, if any but the head has some."""
        others = sorted(self._nodes.others)
        tasks = self._nodes.actors("TaskActor")
        busy = sorted(set(tasks).intersection(others))
        completed = self._completed()
        if not others or self._at_death == completed:
            return None
        there = busy or others
        victim = there[draw % len(there)]
        self._missing.append(now + REPLACED_S)
        self._nodes.kill(victim)
        self._at_death = completed
        return f"node {victim[:8]} of {len(tasks.get(victim, ()))} tasks"
