"""Looks, every few seconds, whether there is room for an adaptive job to grow, and has it grow.

On a thread of its own: Ray may keep it waiting. Each look is one call of Ray's control service, and
none while the job has all that it is to have.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ...core.failure_text import described
from ...core.job_status import JobStatus
from ..coordinator.adaptive import Growing
from ..coordinator.askers import Asker
from ..coordinator.fitting import greatest, slots_at
from ..coordinator.rescale_figures import RescaleFigures
from ..graph.model import JobGraph
from ..graph.rescaling import limited, shape_of, widest
from .cluster_room import free_on_nodes
from .coordinator_inbox import RescaleWanted
from .driver import JobDriver

log = logging.getLogger("strom")

LOOK_S: Final = 3.0


class GrowthLooks:
    """Of one job, in one coordinator."""

    def __init__(
        self, planned: JobGraph, driver: JobDriver, want: Callable[[RescaleWanted], None]
    ) -> None:
        """`planned`: as its program made it. `want`: puts it into the driver's inbox."""
        self._planned = planned
        self._driver = driver
        self._want = want
        self._growing = Growing(planned.config.adaptive)
        self._asked = False
        """Whether it is growing."""
        self._over = threading.Event()
        self.held = False
        """Whether others wait for what is free; set from any thread."""
        self.lacks = False
        """Whether it would grow if there were room, when it was looked last."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="strom-growth", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self.look()
            except Exception as error:  # of Ray's control service, which may be away
                log.debug("whether the job could grow is not known: %s", described(error))

    def look(self) -> None:
        """Once."""
        now, wanted = self._driver.graph.job, self._driver.wanted
        runs = self._driver.state is JobStatus.RUNNING
        self.lacks = shape_of(now) != shape_of(wanted)
        if not runs or self._asked or self.held or not self.lacks:
            return
        current, most = widest(self._planned, now), widest(self._planned, wanted)
        free = [*free_on_nodes().values()]
        fitting = greatest(lambda p: slots_at(self._planned, wanted, p, now), current, most, free)
        parallelism = self._growing.look(current, fitting, most, time.monotonic())
        if parallelism is not None:
            log.info("there is room for %s subtasks in place of %s", parallelism, current)
            grown = limited(self._planned, wanted, parallelism)
            self._asked = True
            self._want(RescaleWanted(grown, self._told, Asker.ROOM))

    def _told(self, figures: RescaleFigures | None, error: str | None) -> None:
        if figures is None:
            log.warning("the job did not grow: %s", error)
            self._growing.failed(time.monotonic())
        self._asked = False
