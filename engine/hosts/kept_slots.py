"""Slots that outlive their job: whose they are, until either the session or nobody wants them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import ray

from .control_service import patiently
from .ray_connect import NAMESPACE

log = logging.getLogger("strom")

HEARING_S: Final = 60.0
"""How long a coordinator that would leave waits for the session to hear of its job's end, or to be
gone."""

PAUSE_S: Final = 1.0
"""Between two looks for that."""


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


async def leave_kept(job_id: str, heard: Callable[[], bool], release: Callable[[], bool]) -> None:
    """The job's coordinator would leave: return when its slots are somebody else's, or nobody's, or
    after a minute. `heard`: whether the session knows that the job is over, and lends them to
    others from then on. `release`: gives them back if there is no session any more, and may take
    long; False: there is one, which may hear of the end, or go before it does."""
    ends = time.monotonic() + HEARING_S
    while not heard() and time.monotonic() < ends:
        try:
            if await asyncio.to_thread(release):
                return
        except Exception:
            log.exception("job %s: its slots could not be given back", job_id)
        await asyncio.sleep(PAUSE_S)
