"""What a session is told of a job while that runs, beside how it ends."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.job_status import JobStatus
from .driver import JobDriver
from .growth_looks import GrowthLooks
from .ray_cluster import RayCluster


class SessionNews:
    """Of one coordinator; changed on its driver's thread."""

    def __init__(self) -> None:
        self.savepoints: list[tuple[str, int]] = []
        """Where each complete one is, and since when (ms); only grows."""
        self.added: Mapping[str, float] = {}
        self.lacks = False
        """What the job's slots take beside those it began with, and whether it would have more;
        while it runs."""

    def look(
        self, driver: JobDriver, cluster: RayCluster | None, growth: GrowthLooks | None
    ) -> bool:
        """Whether there is any."""
        saved, news = driver.newest_savepoint, False
        if saved is not None and saved not in self.savepoints[-1:]:
            self.savepoints.append(saved)
            news = True
        if cluster is not None and driver.state is JobStatus.RUNNING:
            lacks = cluster.seeks or (growth is not None and growth.lacks)
            news |= (cluster.added, lacks) != (self.added, self.lacks)
            self.added, self.lacks = cluster.added, lacks
        return news
