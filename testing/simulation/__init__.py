"""Jobs under a seeded scheduler, a virtual clock and a storage that fails.

From the top: `user_jobs` (a user's pipeline), `__main__` (random jobs from the command line),
`running_seeds` (many), `random_jobs` and `running` (one case). A case is plain data (`case`), drawn
in one place (`draws`), of jobs in `topologies` (`functions`, `records`, `reading`), on storages
that fail (`storage`), with tasks that are cut off (`partitions`) and sinks that are away (`sinks`).
What has to hold at each step is in `invariants`; that it is looked at is shown by `mutations`.
`shrinking` makes a case that fails short, and `regressions` keeps those that found something.
"""

from __future__ import annotations

from .draws import Faults
from .user_jobs import SimulationFailed, simulate

__all__ = ["Faults", "SimulationFailed", "simulate"]
