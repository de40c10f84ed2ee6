"""The job master under a seeded random host: tasks, workers and faults in random order.

Each seed is one whole job with its own faults. Checked after every event: the master's own
invariants; never two attempts at once, nor the sources of two; checkpoint ids grow, those of the
completed ones, too; never more checkpoints at once than allowed, and those that a newer one has
made needless are aborted; a published
checkpoint has the parts of all tasks; splits are neither lost nor given twice within what a restore
goes back to; the job ends, once, within a bounded number of events once the faults are used up, and
nothing follows from what its workers still do then; who asks for a savepoint, or for the end of the
job with one, is answered once, with a path only if it is complete, and of a stop only if the job
has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from amounts import seeds
from simulated_host import Simulation
from strom.core.job_status import JobStatus


def run_seed(seed: int, make_graph: Callable[..., Any]) -> Simulation:
    simulation = Simulation(seed, make_graph)
    try:
        simulation.run()
        simulation.check_end()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    return simulation


@pytest.mark.parametrize("block", seeds(4))
def test_random_jobs_end_well(block: int, graph: Callable[..., Any]) -> None:
    seen: dict[JobStatus, int] = {}
    restarts = saved = stopped = several = 0
    for seed in range(block * 150, (block + 1) * 150):
        simulation = run_seed(seed, graph)
        assert simulation.ended is not None
        seen[simulation.ended.status] = seen.get(simulation.ended.status, 0) + 1
        restarts += simulation.master.status().restarts
        saved += len(simulation.kept)
        stopped += simulation.stopped_with is not None
        several += simulation.most > 1
    assert set(seen) == {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED}, seen
    assert restarts > 50
    assert saved > 50, saved
    assert stopped > 25, stopped
    assert several > 5, several


@pytest.mark.parametrize("block", range(3))
def test_jobs_of_several_regions_end_well(block: int, parts: Callable[..., Any]) -> None:
    """No mail for tasks that are not there, no checkpoint without all of them, and no split lost
    or read twice within what a region or the job goes back to."""
    finished = alone = 0
    for seed in range(block * 150, (block + 1) * 150):
        simulation = run_seed(seed, parts)
        assert simulation.ended is not None
        finished += simulation.ended.status is JobStatus.FINISHED
        alone += simulation.region_restarts
    assert finished > 50, finished
    assert alone > 25, alone
