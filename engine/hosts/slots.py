"""Slots: what the tasks of a job run in, and the placement groups of Ray that hold them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ...core.config import SlotResources
from ...core.errors import ResourceError
from ...core.ids import TaskId
from ..graph.model import JobGraph
from .control_service import patiently
from .ray_connect import NAMESPACE

log = logging.getLogger("strom")

SETTLING_S: Final = 2.0
"""How long the making of slots may take that are to be given back, once there is room."""

SOON_S: Final = 2.0
"""What is waited for no longer than that, nobody has to be told of."""

LATE_S: Final = 120.0
"""How long Ray may take to find out that a node is dead, at most."""

PAUSE_S: Final = 0.05
"""Before Ray is asked again."""


def slots_of(job: JobGraph) -> dict[TaskId, int]:
    """The slot of each task. A slot holds one subtask of each vertex of one slot sharing group."""
    widths: dict[str, int] = {}
    for vertex in job.vertices:
        group = vertex.slot_sharing_group
        widths[group] = max(widths.get(group, 0), vertex.parallelism)
    start: dict[str, int] = {}
    total = 0
    for group, width in widths.items():
        start[group] = total
        total += width
    return {
        TaskId(v.id, i): start[v.slot_sharing_group] + i
        for v in job.vertices
        for i in range(v.parallelism)
    }


Bundle = dict[str, float]
"""What one slot takes, by Ray's names."""


def bundles_of(job: JobGraph) -> list[Bundle]:
    """What each slot takes, in their order."""
    groups = {v.id: v.slot_sharing_group for v in job.vertices}
    group_of = {slot: groups[task.vertex] for task, slot in slots_of(job).items()}
    config = job.config
    plain = SlotResources(None, config.slot_memory, config.slot_others)
    return [
        config.slot_resources.get(group_of[slot], plain).bundle(config.slot_cpus)
        for slot in range(len(group_of))
    ]


def total_of(bundles: Sequence[Bundle]) -> dict[str, float]:
    """What slots take together, by Ray's names."""
    total: Counter[str] = Counter()
    for bundle in bundles:
        total.update(bundle)
    return dict(total)


@dataclass(frozen=True)
class KeptSlots:
    """A placement group that outlives the job: `name` says which, made or not; `keeper`: the name
    of the actor that has it then."""

    name: str
    keeper: str

    def wanted(self) -> bool:
        """Whether there is somebody to have it."""
        try:
            patiently(lambda: ray.get_actor(self.keeper, namespace=NAMESPACE))
        except ValueError:
            return False
        return True


def give_back(group: PlacementGroup) -> None:
    """Remove slots, whether they are there, are being made, or wait for room."""
    await_made(group)
    remove_placement_group(group)


def await_made(group: PlacementGroup) -> None:
    """Wait, up to `SETTLING_S`, until Ray is not making these slots, before they are removed or
    their coordinator is killed: what Ray (2.60) removes between the two phases of its making is
    gone by its account, and its resources stay taken for as long as the cluster lives. Slots that
    wait for room are not waited for; that Ray begins to make them in that very moment cannot be
    seen from here."""
    deadline = time.monotonic() + SETTLING_S
    while _being_made(group) and time.monotonic() < deadline:
        time.sleep(0.005)


def _being_made(group: PlacementGroup) -> bool:
    known: Mapping[str, Any] = placement_group_table(group)
    waits = known.get("stats", {}).get("scheduling_state") in ("NO_RESOURCES", "INFEASIBLE")
    return known.get("state") in ("PENDING", "PREPARED", "RESCHEDULING") and not waits


class Slots:
    """A placement group with one bundle per slot. It outlives its coordinator, and has a name, so
    that it is found by the next, by the tasks if there is none (`ray_task`), and by whoever kills
    the coordinator while it makes the group (`launch.withdraw`)."""

    def __init__(self, job: JobGraph, name: str, kept: KeptSlots | None = None) -> None:
        """`kept`: the group that is used, and stays; None: one that ends with the job."""
        self._name = name if kept is None else kept.name
        self._kept = kept
        self._slots = slots_of(job)
        self._bundles = bundles_of(job)
        self._timeout = job.config.slot_request_timeout
        self._group: PlacementGroup | None = None

    def reserve(self, cancelled: Future[None], down: Collection[str] = ()) -> None:
        """Wait for the bundles; ResourceError says what the cluster lacks. Raises that of
        `cancelled`, and Ray's errors; there are none then. Of those that are there Ray places anew
        what lay on a node that died: that is waited for, too, but they stay in any case. `down`:
        nodes (Ray's ids) that are dead, whether Ray knows it or not."""
        if self._group is not None:
            self._await_placed(cancelled, down)
            return
        group = self._found() or placement_group(
            self._bundles,
            strategy="PACK",
            name=self._name,
            lifetime="detached",
        )
        try:
            wait_for([group.ready()], self._timeout.total_seconds(), cancelled)
        except TimeoutError:
            give_back(group)
            have, free = ray.cluster_resources(), ray.available_resources()
            raise ResourceError(
                f"{lacking(self._bundles, have, free)} (waited for {self._timeout}): lower the "
                "parallelism or what slots take (slot_cpus, slot sharing groups), or add nodes"
            ) from None
        except BaseException:  # the job was cancelled, or Ray fails: nobody knows of them then
            give_back(group)
            raise
        self._group = group

    def _await_placed(self, cancelled: Future[None], down: Collection[str]) -> None:
        """The time that Ray takes to find out about `down` does not count."""
        began = time.monotonic()
        known, told = began, False
        while lost := self.lost(down):
            now = time.monotonic()
            if any(node in down for node in lost) and now < began + LATE_S:
                known = now
            if now >= known + self._timeout.total_seconds():
                have, free = ray.cluster_resources(), ray.available_resources()
                raise ResourceError(
                    f"{len(lost)} of the job's slots lay on nodes that died, and there is no room "
                    f"for them: {lacking(self._bundles, have, free)} (waited for {self._timeout}): "
                    "add nodes, or go on from its newest checkpoint at a lower parallelism"
                )
            if not told and now >= began + SOON_S:
                told = True
                log.warning(
                    "%s of the job's slots lay on nodes that died: waiting until Ray has placed "
                    "them anew",
                    len(lost),
                )
            done, _ = wait([cancelled], PAUSE_S)
            for future in done:
                future.result()

    def lost(self, down: Collection[str]) -> list[str]:
        """Of each bundle that is not to be used now where it lay (Ray's id), if that is known."""
        nodes = patiently(ray.nodes)
        alive = {node["NodeID"] for node in nodes if node["Alive"]} - set(down)
        return [node for node in self._placed().values() if node not in alive]

    def nodes(self) -> dict[TaskId, str]:
        """Where each task's slot is, by Ray's ids; empty ones where that is being decided."""
        placed = self._placed()
        return {task: placed[slot] for task, slot in self._slots.items()}

    def _placed(self) -> dict[int, str]:
        placed = placement_group_table(self._group).get("bundles_to_node_id", {})
        return {slot: placed.get(slot, "") for slot in range(len(self._bundles))}

    def _found(self) -> PlacementGroup | None:
        """What another job, or the coordinator before this, has left, if it is there."""
        with suppress(ValueError):
            return get_placement_group(self._name)
        return None

    def find(self) -> None:
        """Use what is there under its name, of the coordinator before this."""
        with suppress(ValueError):
            self._group = get_placement_group(self._name)

    @property
    def own_name(self) -> str | None:
        """That of the group, if it ends with the job."""
        return self._name if self._kept is None else None

    def options(self, task: TaskId) -> dict[str, Any]:
        """Actor options that put the task into its slot. All tasks of a slot share its CPUs."""
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group,
            placement_group_bundle_index=self._slots[task],
        )
        return {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": strategy}

    def on_several_machines(self) -> bool:
        """Whether they lie on machines of different addresses. While Ray has not placed all of
        them (anew, after the loss of a node): whether there are such machines at all."""
        placed = set(self._placed().values())
        nodes = {n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"]}
        known = placed if placed <= nodes.keys() else nodes.keys()
        return len({nodes[node] for node in known}) > 1

    def release(self) -> None:
        """Also of those that a coordinator before this has asked for, and this one did not need."""
        group, self._group = self._group, None
        if group is None and self._kept is None:
            group = self._found()
        if group is not None and (self._kept is None or not self._kept.wanted()):
            give_back(group)


def lacking(
    bundles: Sequence[Mapping[str, float]], have: Mapping[str, float], free: Mapping[str, float]
) -> str:
    """What slots that cannot be had need, and what the cluster has of that."""
    kinds = Counter(tuple(sorted(bundle.items())) for bundle in bundles)
    needs = " and ".join(f"{n} slots of {_amounts(dict(kind))}" for kind, n in kinds.items())
    names = sorted({name for bundle in bundles for name in bundle})
    there = {name: have.get(name, 0) for name in names}
    left = {name: free.get(name, 0) for name in names}
    return (
        f"the job needs {needs}, the cluster has {_amounts(there)} of which {_amounts(left)} are "
        "free"
    )


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(resources.items()))


def wait_for(refs: Sequence[Any], timeout: float, cancelled: Future[None]) -> list[Any]:
    """The results, waited for on the driver's thread. Raises TimeoutError, or the first error, that
    of `cancelled` among them. (`ray.get` objects to being called in an actor that has an event
    loop, also beside the loop.)"""
    deadline = time.monotonic() + timeout
    futures: list[Future[Any]] = [ref.future() for ref in refs]
    waiting = {cancelled, *futures}
    while len(waiting) > 1:
        done, waiting = wait(waiting, deadline - time.monotonic(), return_when=FIRST_COMPLETED)
        if not done:
            raise TimeoutError
        for future in done:
            future.result()
    return [future.result() for future in futures]
