"""Slots that a job gets while it runs: each a placement group of Ray for itself.

A group cannot be made larger or smaller, and whoever removes one ends the actors in it. So what the
job began with stays as it is, and what a rescale adds is made, and given back, one by one. They end
with the job, wherever the others come from, and have names, so that the next coordinator finds
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group

from ..graph.model import JobGraph
from ..graph.slots import Bundle, SlotKey
from .placement import await_placed, give_back


def strategy_of(job: JobGraph) -> str:
    """Ray's word for where slots of this job are to lie."""
    return "SPREAD" if job.config.spread_slots else "PACK"


class AddedSlots:
    """Of one job, in one coordinator. Thread-safe but for `make`, which one thread calls at a
    time."""

    def __init__(self, name: str, strategy: str) -> None:
        """`name`: of the job's coordinator. `strategy`: of the job's other slots; of a group of one
        Ray takes the node of which most is free, whatever it is."""
        self._prefix = prefix_of(name)
        self._strategy = strategy
        self._groups: dict[SlotKey, PlacementGroup] = {}
        """Those that are there; replaced, never changed."""

    def make(
        self, wanted: Mapping[SlotKey, Bundle], timeout_s: float, cancelled: Future[None]
    ) -> None:
        """Have all of these, of which some may be there, also from a coordinator before. Raises
        TimeoutError, the error of `cancelled`, and Ray's; then there are none more than before."""
        found, made = dict(self._groups), []
        for key, bundle in wanted.items():
            if key in found:
                continue
            name = self._name(key)
            try:
                found[key] = get_placement_group(name)
            except ValueError:
                found[key] = placement_group(
                    [bundle], strategy=self._strategy, name=name, lifetime="detached"
                )
                made.append(found[key])
        try:
            await_placed([found[key] for key in wanted], timeout_s, cancelled)
        except BaseException:
            for group in made:
                give_back(group)
            raise
        self._groups = found

    def find(self, keys: Collection[SlotKey]) -> None:
        """Those of these that a coordinator before has made."""
        for key in keys:
            with suppress(ValueError):
                found = get_placement_group(self._name(key))
                self._groups = {**self._groups, key: found}

    def of(self, key: SlotKey) -> PlacementGroup | None:
        return self._groups.get(key)

    def trim(self, needed: Collection[SlotKey]) -> None:
        """Give back all but these, also of a coordinator before; what runs there ends. Takes
        seconds."""
        self._groups = {key: group for key, group in self._groups.items() if key in needed}
        kept = {self._name(key) for key in needed}
        _give_back_all([name for name in _named(self._prefix) if name not in kept])

    def _name(self, key: SlotKey) -> str:
        return f"{self._prefix}{key[0]}+{key[1]}"


def give_back_added(name: str) -> None:
    """All that the job with a coordinator of this name has got."""
    _give_back_all(_named(prefix_of(name)))


def prefix_of(name: str) -> str:
    """How the names of its added slots begin."""
    return f"{name}+"


def _named(prefix: str) -> list[str]:
    table: Mapping[str, Any] = ray.util.placement_group_table()
    known = [one["name"] for one in table.values() if one["state"] != "REMOVED"]
    return [name for name in known if name.startswith(prefix)]


def _give_back_all(names: Sequence[str]) -> None:
    for name in names:
        with suppress(ValueError):  # it is gone meanwhile
            give_back(get_placement_group(name))
