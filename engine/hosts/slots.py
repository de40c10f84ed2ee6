"""Slots: what the tasks of a job run in, and the placement groups of Ray that hold them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final

import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ...core.errors import ResourceError
from ...core.ids import TaskId
from ..graph.model import JobGraph
from ..graph.slots import (
    Bundle,
    SlotKey,
    bundle_of,
    bundles_of,
    keys_of,
    lacking,
    slots_of,
    total_of,
)
from .added_slots import AddedSlots, strategy_of
from .control_service import patiently
from .kept_slots import KeptSlots
from .placement import PAUSE_S, await_placed
from .placement import await_made as await_made
from .placement import give_back as give_back

log = logging.getLogger("strom")

SOON_S: Final = 2.0
"""What is waited for no longer than that, nobody has to be told of."""

LATE_S: Final = 120.0
"""How long Ray may take to find out that a node is dead, at most."""


class Slots:
    """A placement group with one bundle per slot that the job was planned with. It outlives its
    coordinator, and has a name, so that it is found by the next, by the tasks if there is none
    (`ray_task`), and by whoever kills the coordinator while it makes the group (`launch.withdraw`).
    Beside it those that the job was given since (`added_slots`)."""

    def __init__(
        self,
        planned: JobGraph,
        name: str,
        kept: KeptSlots | None = None,
        job: JobGraph | None = None,
    ) -> None:
        """`kept`: the group that is used, and stays; None: one that ends with the job. `job`: what
        the one that was planned so has become; None: nothing else."""
        self._name = name if kept is None else kept.name
        self._kept = kept
        slots = slots_of(planned)
        self._base = {key: slots[task] for task, key in keys_of(planned).items()}
        """Which bundle of the group each slot is that the job was planned with."""
        self._bundles = bundles_of(planned)
        self._timeout = planned.config.slot_request_timeout
        self._group: PlacementGroup | None = None
        self._strategy = strategy_of(planned)
        self._added = AddedSlots(name, self._strategy)
        self._job = job or planned
        self._keys = keys_of(self._job)
        """The slot of each task."""

    def reserve(self, cancelled: Future[None], down: Collection[str] = ()) -> None:
        """Wait for the bundles; ResourceError says what the cluster lacks. Raises that of
        `cancelled`, and Ray's errors; there are none then. Of those that are there Ray places anew
        what lay on a node that died: that is waited for, too, but they stay in any case. `down`:
        nodes (Ray's ids) that are dead, whether Ray knows it or not."""
        there = self._group is not None
        if not there:
            self.trim()  # of a coordinator before, for a rescale, say: it may be all the room left
            self._reserve_group(cancelled)
        self.add_for(self._job, cancelled)
        if there:
            self._await_placed(cancelled, down)

    def add_for(self, job: JobGraph, cancelled: Future[None]) -> None:
        """Have what this graph needs beside what there is. Raises as `reserve`; there are none more
        than before then."""
        wanted = {
            key: bundle_of(job, key[0]) for key in keys_of(job).values() if key not in self._base
        }
        if not wanted:
            return
        try:
            self._added.make(wanted, self._timeout.total_seconds(), cancelled)
        except TimeoutError:
            have, free = ray.cluster_resources(), ray.available_resources()
            missing = self._added.missing(wanted) or [*wanted.values()]
            raise ResourceError(
                f"beside what it has {lacking(missing, have, free)} (waited for {self._timeout}): "
                "ask for a lower parallelism, or add nodes"
            ) from None

    def adopt(self, job: JobGraph) -> None:
        """The job is this from now on."""
        self._job, self._keys = job, keys_of(job)

    @property
    def added(self) -> dict[str, float]:
        """What those take that the job has beside the ones it was planned with."""
        keys = dict.fromkeys(self._keys.values())
        return total_of([bundle_of(self._job, key[0]) for key in keys if key not in self._base])

    def trim(self) -> None:
        """Give back what was added and is not needed; takes seconds, and ends what runs there."""
        self._added.trim(self._keys.values())

    def _reserve_group(self, cancelled: Future[None]) -> None:
        """The one that a coordinator before has had, or a new one."""
        group = self._found() or placement_group(
            self._bundles,
            strategy=self._strategy,
            name=self._name,
            lifetime="detached",
        )
        try:
            await_placed([group], self._timeout.total_seconds(), cancelled)
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
        return {task: placed[key] for task, key in self._keys.items()}

    def _placed(self) -> dict[SlotKey, str]:
        """Of the slots that are used."""
        base = placement_group_table(self._group).get("bundles_to_node_id", {})
        return {
            key: base.get(self._base[key], "") if key in self._base else self._node_of(key)
            for key in dict.fromkeys(self._keys.values())
        }

    def _node_of(self, key: SlotKey) -> str:
        group = self._added.of(key)
        if group is None:
            return ""
        placed: Mapping[int, str] = placement_group_table(group).get("bundles_to_node_id", {})
        return placed.get(0, "")

    def _found(self) -> PlacementGroup | None:
        """What another job, or the coordinator before this, has left, if it is there."""
        with suppress(ValueError):
            return get_placement_group(self._name)
        return None

    def find(self) -> None:
        """Use what is there under its name, of the coordinator before this."""
        with suppress(ValueError):
            self._group = get_placement_group(self._name)
        self._added.find([key for key in self._keys.values() if key not in self._base])

    @property
    def own_name(self) -> str | None:
        """That of the group, if it ends with the job."""
        return self._name if self._kept is None else None

    def options(self, task: TaskId) -> dict[str, Any]:
        """Actor options that put the task into its slot, which there is. All tasks of a slot share
        its CPUs."""
        key = self._group_of(task), task.subtask
        added = self._added.of(key)
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group if added is None else added,
            placement_group_bundle_index=self._base[key] if added is None else 0,
        )
        return {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": strategy}

    def bundle(self, task: TaskId) -> Bundle:
        """What the slot of the task takes."""
        return bundle_of(self._job, self._group_of(task))

    def _group_of(self, task: TaskId) -> str:
        return self._job.vertex(task.vertex).slot_sharing_group

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
        self._added.trim(())
        if group is None and self._kept is None:
            group = self._found()
        if group is not None and (self._kept is None or not self._kept.wanted()):
            give_back(group)

    def release_left(self) -> bool:
        """Those that stayed for a keeper that went before it heard of the job's end, and so never
        lent them to anybody. False: it is there still, and may hear of it."""
        if self._kept is None:
            return True
        if self._kept.wanted():
            return False
        group = self._found()
        if group is not None:
            give_back(group)
        return True
