"""Slots that a job gets while it runs: each a placement group of Ray for itself.

A group cannot be made larger or smaller, and whoever removes one ends the actors in it. So what the
job began with stays as it is, and what a rescale adds is made, and given back, one by one. They end
with the job, wherever the others come from, and have names, so that the next coordinator finds
them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group

from ..graph.model import JobGraph
from ..graph.slots import Bundle, SlotKey
from .placement import await_placed, give_back, is_placed


def strategy_of(job: JobGraph) -> str:
    """Ray's word for where slots of this job are to lie."""
    return "SPREAD" if job.config.spread_slots else "PACK"


class AddedSlots:
    """Of one job, in one coordinator. Thread-safe: a deployment has what the job needs while a
    rescale waits for what it is to need, and either may want what the other does."""

    def __init__(self, name: str, strategy: str) -> None:
        """`name`: of the job's coordinator. `strategy`: of the job's other slots; of a group of one
        Ray takes the node of which most is free, whatever it is."""
        self.prefix = prefix_of(name)
        """What the names of its groups begin with."""
        self._strategy = strategy
        self._changing = threading.Lock()
        """Held while groups are asked for or given back one by one, but not while they are waited
        for."""
        self._groups: dict[SlotKey, PlacementGroup] = {}
        """Those that are there; replaced under `_changing`, never changed."""
        self._new: dict[SlotKey, PlacementGroup] = {}
        """Those that were asked for here and are not there yet. Changed under `_changing`."""
        self._awaited: Counter[SlotKey] = Counter()
        """How many wait for each. Changed under `_changing`."""

    def make(
        self, wanted: Mapping[SlotKey, Bundle], timeout_s: float, cancelled: Future[None]
    ) -> None:
        """Have all of these, of which some may be there, also from a coordinator before. Raises
        TimeoutError, the error of `cancelled`, and Ray's; then there are none more than before, but
        for those that somebody else waits for."""
        with self._changing:
            found = self._asked(wanted)
            self._awaited.update(wanted.keys())
        try:
            await_placed([*found.values()], timeout_s, cancelled)
        except BaseException:
            with self._changing:
                self._leave(wanted.keys())
                for key in wanted:
                    if key in self._new and not self._awaited[key]:
                        give_back(self._new.pop(key))
            raise
        with self._changing:
            self._leave(wanted.keys())
            self._have(found)

    def ask(self, wanted: Mapping[SlotKey, Bundle]) -> None:
        """Have these, of which Ray makes what is not there; they are not waited for."""
        with self._changing:
            self._have(self._asked(wanted))

    def _have(self, found: Mapping[SlotKey, PlacementGroup]) -> None:
        """With what others have got meanwhile."""
        self._groups = {**self._groups, **found}
        for key in found:
            self._new.pop(key, None)

    def _leave(self, wanted: Iterable[SlotKey]) -> None:
        """One less waits for these."""
        self._awaited.subtract(wanted)
        self._awaited = +self._awaited

    def _asked(self, wanted: Mapping[SlotKey, Bundle]) -> dict[SlotKey, PlacementGroup]:
        """These then. The first slots of all sharing groups come first: there may be room for some
        only."""
        found = {**self._new, **self._groups}
        for key in sorted(wanted.keys() - found.keys(), key=lambda key: (key[1], key[0])):
            name = self.name(key)
            try:
                found[key] = get_placement_group(name)
            except ValueError:
                found[key] = self._new[key] = placement_group(
                    [wanted[key]], strategy=self._strategy, name=name, lifetime="detached"
                )
        return {key: found[key] for key in wanted}

    def find(self, keys: Collection[SlotKey]) -> None:
        """Those of these that a coordinator before has made."""
        for key in keys:
            with suppress(ValueError):
                found = get_placement_group(self.name(key))
                with self._changing:
                    self._have({key: found})

    def of(self, key: SlotKey) -> PlacementGroup | None:
        return self._groups.get(key)

    @property
    def is_empty(self) -> bool:
        """Whether this coordinator knows of none."""
        return not self._groups

    def missing(self, wanted: Mapping[SlotKey, Bundle]) -> list[Bundle]:
        """What those of these take that are not there, or have no place."""
        groups = self._groups
        return [b for key, b in wanted.items() if key not in groups or not is_placed(groups[key])]

    def trim(self, needed: Collection[SlotKey]) -> None:
        """Give back all but these, also of a coordinator before; what runs there ends. Takes
        seconds."""
        with self._changing:
            self._groups = {key: one for key, one in self._groups.items() if key in needed}
        kept = {self.name(key) for key in needed}
        _give_back_all([name for name in _named(self.prefix) if name not in kept])

    def name(self, key: SlotKey) -> str:
        """Of the group that it is."""
        return f"{self.prefix}{key[0]}+{key[1]}"


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
