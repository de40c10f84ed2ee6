"""Task processes that are there before anybody needs them, so that a start, or a restart after a
process died, need not wait for Python and its libraries.

A *keeper* (the session's dispatcher) has some of them on each node. They are the actors of
`ray_task`, under names of their own and without a task; a job's coordinator takes one for a slot on
its node. Whose one is stands in Ray's key-value store, where only the first of several takers
writes; there the job's next coordinator finds what the one before has taken. Their processes have
the same runtime environment as whoever made them, and are taken only by coordinators with the same.
They take no CPU of Ray's: a task has those of its slot.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import ray
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..graph.slots import Bundle
from .control_service import patiently
from .coordinator_answers import coordinator_name
from .coordinator_names import jobs_with_coordinators, named_actors
from .ray_connect import NAMESPACE
from .ray_task import TaskActor

log = logging.getLogger("strom")

PREFIX: Final = "strom-ready-"

TAKEN: Final = b"strom-taken"
"""The namespace in which stands by whom, under the actor's name."""

CALM_S: Final = 5.0
"""None is made for so long after some were taken: the job that starts has the processor."""

PER_CPU: Final = 2
"""More than one: most slots have several tasks."""

ORDINARY: Final = frozenset({"CPU", "memory"})
"""What Ray gives to a process without anything being different in it."""


def fits(bundle: Bundle) -> bool:
    """Whether a process that was made without this slot may have it."""
    return bundle.keys() <= ORDINARY


class ReadyTasks:
    """Those of one keeper, which calls `tend` every now and then, on any one thread."""

    def __init__(self, keeper: Any, count: int, now: Callable[[], float] = time.monotonic) -> None:
        """`keeper`: an actor with a method `hold` that never returns; they end when it is dead for
        good. `count`: on each node, but no more than `PER_CPU` for each of its CPUs."""
        self._keeper = keeper
        self._count = count
        self._now = now
        self._make = ray.remote(TaskActor)
        self._starting: dict[str, Any] = {}
        """By node, the reference of what the newest one is busy with."""
        self._taken: frozenset[str] = frozenset()
        self._calm_from = now()

    def tend(self) -> None:
        """Make at most one more on each node. Raises Ray's errors."""
        if not self._count:
            return
        owners = taken()  # ahead of where they are looked for: who has taken one was there then
        there = patiently(named_actors)
        self._forget_dead(there, owners)
        now_taken = frozenset(owners) & frozenset(there)
        if now_taken - self._taken:
            self._calm_from = self._now() + CALM_S
        self._taken = now_taken
        if self._now() < self._calm_from:
            return
        for node, cpus in _nodes().items():
            free = [one for one in there if one.startswith(_prefix(node)) and one not in owners]
            if len(free) < min(self._count, PER_CPU * cpus) and not self._is_starting(node):
                self._add(node)

    def _is_starting(self, node: str) -> bool:
        known = self._starting.get(node)
        return known is not None and not ray.wait([known], timeout=0)[0]

    def _add(self, node: str) -> None:
        actor = self._make.options(
            name=f"{_prefix(node)}{secrets.token_hex(8)}",
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote()
        self._starting[node] = actor.stand_by.remote(self._keeper)

    def _forget_dead(self, there: Mapping[str, None], owners: Mapping[str, str]) -> None:
        """Also what a coordinator has taken that died for good before it could say anything."""
        jobs = patiently(jobs_with_coordinators) if owners else []
        coordinators = {coordinator_name(job_id) for job_id in jobs}
        for name, owner in owners.items():
            if name not in there:
                internal_kv._internal_kv_del(name, namespace=TAKEN)
            elif owner not in coordinators:
                _end(name)


class Taker:
    """Takes for one deployment of one coordinator."""

    def __init__(self, coordinator: str) -> None:
        """`coordinator`: its name (`coordinator_name`)."""
        self._coordinator = coordinator
        self._names: list[str] | None = None

    def take(self, node: str) -> Any | None:
        """One on that node (Ray's id), which is this coordinator's from now on; None: there is
        none."""
        if self._names is None:
            there = patiently(named_actors)
            self._names = [name for name in there if name.startswith(PREFIX)]
        prefix = _prefix(node)
        for name in [one for one in self._names if one.startswith(prefix)]:
            self._names.remove(name)
            if self._is_mine(name):
                with suppress(ValueError):  # it has just died
                    return patiently(partial(ray.get_actor, name, NAMESPACE))
        return None

    def _is_mine(self, name: str) -> bool:
        """A second call with the same token finds that the first was heard, if its answer was
        lost."""
        mine = f"{self._coordinator} {secrets.token_hex(8)}"
        put = partial(internal_kv._internal_kv_put, name, mine, False, namespace=TAKEN)
        return not patiently(put) or _value(name) == mine


def taken() -> dict[str, str]:
    """By the name of each that was taken, and may be dead, that of the coordinator that did."""
    known = patiently(partial(internal_kv._internal_kv_list, b"", namespace=TAKEN))
    names = [name.decode() for name in known]
    return {name: owner.partition(" ")[0] for name in names if (owner := _value(name))}


def taken_by(coordinator: str) -> Iterator[Any]:
    """The actors that coordinators of this name have taken and that are not dead."""
    for name, owner in taken().items():
        if owner == coordinator:
            with suppress(ValueError):
                yield patiently(partial(ray.get_actor, name, NAMESPACE))


def count_ready() -> int:
    """How many nobody has taken, on all nodes, whether they are so far or not."""
    owners = taken()
    there = patiently(named_actors)
    return sum(one.startswith(PREFIX) and one not in owners for one in there)


def await_ready(timeout_s: float) -> None:
    """Until all that nobody has taken stand by, and import nothing more. GetTimeoutError, and
    Ray's errors of one that dies meanwhile."""
    owners = taken()
    names = [one for one in patiently(named_actors) if one.startswith(PREFIX) and one not in owners]
    actors = [patiently(partial(ray.get_actor, name, NAMESPACE)) for name in names]
    ray.get([actor.stands_by.remote() for actor in actors], timeout=timeout_s)


def end_ready() -> None:
    """Those of this process's runtime environment that nobody has taken."""
    owners, mine = taken(), f"{PREFIX}{environment()}-"
    for name in patiently(named_actors):
        if name.startswith(mine) and name not in owners:
            _end(name)


def _end(name: str) -> None:
    with suppress(ValueError):
        ray.kill(ray.get_actor(name, NAMESPACE), no_restart=True)


def _value(name: str) -> str:
    found = patiently(partial(internal_kv._internal_kv_get, name, namespace=TAKEN))
    return "" if found is None else bytes(found).decode()


def _nodes() -> dict[str, int]:
    """How many CPUs each node has, by Ray's ids; without those that have none."""
    alive = [node for node in patiently(ray.nodes) if node["Alive"]]
    cpus = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in alive}
    return {node: count for node, count in cpus.items() if count}


def _prefix(node: str) -> str:
    return f"{PREFIX}{environment()}-{node}-"


def environment() -> str:
    """What names say of this process's runtime environment."""
    told = ray.get_runtime_context().get_runtime_env_string()
    return blake2b(told.encode(), digest_size=4).hexdigest()
