"""The slots of an adaptive job: it goes on with those that there are.

A placement group is there as a whole or not at all. So each slot is one for itself, as those that a
rescale adds (`added_slots`): Ray makes as many as there is room for, and what waits, a job that
goes on smaller gives back. All are asked for at first, so that whoever adds nodes to the cluster by
what waits there knows of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import Final

import ray

from ...core.errors import ResourceError
from ..coordinator.adaptive import Smaller, TooLittle, Waiting
from ..coordinator.fitting import Nodes, greatest, slots_at
from ..graph.model import JobGraph
from ..graph.rescaling import limited, widest
from ..graph.slots import Bundle, SlotKey, bundle_of, keys_of, lacking, total_of
from .cluster import LittleRoomError
from .cluster_room import own_room, single_slots
from .kept_slots import KeptSlots
from .slots import SOON_S, Slots

log = logging.getLogger("strom")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Before it is looked again what there is; each pause is longer than the one before."""


def slots_for(planned: JobGraph, name: str, kept: KeptSlots | None, job: JobGraph) -> Slots:
    """As of `Slots`."""
    if planned.config.adaptive.enabled:
        return AdaptiveSlots(planned, name, job)
    return Slots(planned, name, kept, job)


class AdaptiveSlots(Slots):
    """None of them comes from elsewhere."""

    def __init__(self, planned: JobGraph, name: str, job: JobGraph) -> None:
        """As of `Slots`."""
        super().__init__(planned, name, None, job)
        self._planned = planned
        self._base, self._bundles = {}, []

    def reserve(self, cancelled: Future[None], down: Collection[str] = ()) -> None:
        """Wait for all, or until it is settled that there is room for less: LittleRoomError; or for
        too little: ResourceError. Raises that of `cancelled`, and Ray's errors."""
        wanted = {key: bundle_of(self._job, key[0]) for key in keys_of(self._job).values()}
        if self._added.is_empty:  # a coordinator before this may have got more
            self.trim()
        self._added.ask(wanted)
        config, most = self._job.config.adaptive, widest(self._planned, self._job)
        began, pause, told = time.monotonic(), FIRST_PAUSE_S, False
        waiting = Waiting(config, most, began)
        while True:
            room, now = own_room(self._added.prefix, down), time.monotonic()
            missing = [key for key in wanted if self._added.name(key) not in room.there]
            if not missing:
                return
            fitting, placed = (self._greatest(nodes, most) for nodes in (room.nodes, room.mine))
            match waiting.look(fitting, placed, now):
                case Smaller(parallelism):
                    raise self._smaller(parallelism, [*wanted.values()])
                case TooLittle():
                    raise self._too_little([*wanted.values()])
            if not told and now >= began + SOON_S:
                told = True
                log.warning("waiting for slots: %s", self._lacking([*wanted.values()]))
            done, _ = wait([cancelled], pause)
            for future in done:
                future.result()
            pause = min(1.5 * pause, LONGEST_PAUSE_S)

    def _placed(self) -> dict[SlotKey, str]:
        """Of the slots that are used; empty ones where Ray has not placed them."""
        there = single_slots(self._added.prefix)
        return {
            key: there.get(self._added.name(key), ("", {}))[0]
            for key in dict.fromkeys(self._keys.values())
        }

    def _greatest(self, nodes: Nodes, most: int) -> int | None:
        return greatest(
            lambda p: slots_at(self._planned, self._job, p), self._least(most), most, nodes
        )

    def _least(self, most: int) -> int:
        return min(self._job.config.adaptive.min_parallelism, most)

    def _smaller(self, parallelism: int, wanted: list[Bundle]) -> LittleRoomError:
        smaller = limited(self._planned, self._job, parallelism)
        return LittleRoomError(smaller, self._lacking(wanted))

    def _too_little(self, wanted: list[Bundle]) -> ResourceError:
        least = self._least(widest(self._planned, self._job))
        return ResourceError(
            f"{self._lacking(wanted)}, which is too little for the least parallelism, "
            f"{least} (waited for {self._job.config.adaptive.wait}): lower it "
            "(strom.adaptive.min-parallelism) or what slots take, or add nodes"
        )

    def _lacking(self, wanted: list[Bundle]) -> str:
        have, free = ray.cluster_resources(), ray.available_resources()
        own = total_of([bundle for _, bundle in single_slots(self._added.prefix).values()])
        return lacking(wanted, have, free, own)
