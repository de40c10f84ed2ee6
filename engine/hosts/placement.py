"""Placement groups of Ray: given back without a loss, and waited for on the driver's thread."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, Final

from ray.util.placement_group import (
    PlacementGroup,
    placement_group_table,
    remove_placement_group,
)

from .control_service import patiently

FIRST_PAUSE_S: Final = 0.002

PAUSE_S: Final = 0.05
"""Before Ray is asked again; the first pauses are shorter."""

SETTLING_S: Final = 2.0
"""How long the making of slots may take that are to be given back, once there is room."""


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


def await_placed(groups: Sequence[PlacementGroup], timeout: float, cancelled: Future[None]) -> None:
    """Until all have their places. Raises TimeoutError, or that of `cancelled`. (That a group is
    `ready` Ray finds out by a task in it, which takes a process: half a second of each start.)"""
    deadline = time.monotonic() + timeout
    left, pause_s = list(groups), FIRST_PAUSE_S
    while left := [one for one in left if not is_placed(one)]:
        if time.monotonic() >= deadline:
            raise TimeoutError
        done, _ = wait([cancelled], pause_s)
        for future in done:
            future.result()
        pause_s = min(2 * pause_s, PAUSE_S)


def is_placed(group: PlacementGroup) -> bool:
    """Whether all of them have their places."""
    known: Mapping[str, Any] = patiently(partial(placement_group_table, group))
    return known.get("state") == "CREATED"


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
