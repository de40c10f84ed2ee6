"""What is to happen to a simulated job, what came of it, and who looks on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ...core.errors import StromError
from ...core.ids import CheckpointId, OperatorId
from .cooperative import CooperativeCluster
from .driver import JobDriver
from .job_outcome import JobOutcome


class SimulationError(StromError):
    """A simulated job hung or broke; the message holds the seed that replays it."""


@dataclass(frozen=True)
class SimulationPlan:
    """What happens to the job besides its own work.

    `crashes`: this many tasks crash, each at a random step of the first `crash_window` steps.
    `coordinator_crashes`: this often the coordinator crashes, each from a random step of the same
    window on; half of the times right behind the next checkpoint's publication, before anybody was
    told of it. What its workers had not begun is never done. A new coordinator starts on the same
    storage; of a hundred times it takes over the tasks `tasks_stay` times, else they have crashed,
    too. `slow_workers`: a piece of work of the coordinator's workers (publishing, deleting and
    finding checkpoints, asking enumerators) begins up to so many ms late.
    `crash_after_checkpoints`: a random task crashes right after each of the first so many completed
    checkpoints. `stop_after_checkpoint`: everything is dropped, for good, once so many completed.
    `savepoints`: so many are asked for, each at a random step of the same window.
    `halt_after_checkpoint`: once so many completed, the job is stopped with a savepoint, which is
    asked for again when that fails. `continues`: the job starts from a checkpoint, to which it can
    go back before it has one of its own. `cut_offs`: this often the coordinator and its tasks are
    taken for dead, each from a random step of the same window on, and go on all the same, while
    others start on the same storage: as the same job, or as another one that is restored from it.
    Those that were taken for dead do nothing for up to `away` ms first. `late`: this often a
    coordinator crashes, and the one that comes for it is held up for up to `away` ms before it has
    begun, while another one takes over the tasks; then it comes through, and crashes. `run`: of the
    job, which goes on on its storage. `rescales`: so often the
    job is asked to go on at another parallelism of 1 to 3, of all operators or one, each time when
    it runs, from a random step of the same window on; of a hundred of them, `deals` deal key groups
    by loads that are drawn, and half of these keep the parallelism. `own_rescales`: so often the
    job's autoscaler, if it is enabled, has it rescaled by a whim; 0: it decides by figures, of
    which there are none under a virtual clock. `shortages`: so often tasks that are started find
    room for fewer, and later there is more. `amid`: so many tasks or coordinators crash while tasks
    stop and start for a rescale. `at_stop`: so many coordinators crash while the job is stopped
    with a savepoint. `slow_writers`: the same delay of what tasks write. `hangs`: of a
    thousand pieces of work (of workers and writers) so many take `hang_ms` to begin. `slow_tasks`:
    so many of a hundred tasks are seldom given a step. `brisk`: who had nothing to do is left out
    until it may have heard of something, and time passes once all are: fewer steps, and other
    schedules. `choices`: so many are drawn; from then on all take turns.
    """

    seed: int = 0
    crashes: int = 0
    coordinator_crashes: int = 0
    tasks_stay: int = 50
    crash_window: int = 2000
    crash_after_checkpoints: int = 0
    stop_after_checkpoint: int | None = None
    savepoints: int = 0
    halt_after_checkpoint: int | None = None
    savepoint_directory: str = "memory://strom-simulator"
    slow_workers: int = 10
    slow_writers: int = 0
    hangs: int = 0
    hang_ms: int = 100
    slow_tasks: int = 0
    continues: bool = False
    cut_offs: int = 0
    away: int = 0
    late: int = 0
    run: int = 0
    rescales: int = 0
    deals: int = 0
    own_rescales: int = 0
    shortages: int = 0
    amid: int = 0
    at_stop: int = 0
    brisk: bool = False
    choices: int | None = None
    max_steps: int = 1_000_000


@dataclass
class SimulationResult:
    """`published`: what reached the client, by operator and key, in order. `savepoints`: where each
    one is that is complete, with what was published when it was taken; `refused`: why others are
    not; `halted_at`: the one that stopped the job. `outcome` is None if
    the simulation was stopped. `midway`: how many of the crashes (and the stop) came while there
    was a checkpoint to go back to and input left to read; `stopped_midway`: whether the stop
    did. `cut_off`: how those ended that were taken for dead. `late`: how many coordinators came
    through behind another one, and crashed: nobody removes then what they have begun."""

    job_id: str
    outcome: JobOutcome | None
    published: dict[OperatorId, dict[str, Any]] = field(default_factory=dict)
    steps: int = 0
    crashed: int = 0
    coordinators_crashed: int = 0
    taken_over: int = 0
    """So many of their successors went on with their tasks."""
    midway: int = 0
    stopped_midway: bool = False
    last_checkpoint: CheckpointId | None = None
    savepoints: dict[str, dict[OperatorId, dict[str, Any]]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    halted_at: str | None = None
    cut_off: list[JobOutcome] = field(default_factory=list)
    late: int = 0
    rescaled: int = 0
    """So often somebody was told that it was; `not_rescaled`: why it was not, the other times."""
    not_rescaled: list[str] = field(default_factory=list)
    rescaled_in_part: int = 0
    """So often others went on meanwhile, whoever was told of it."""
    rescaled_holding: int = 0
    """So often some stood still meanwhile, and went on with what they had."""
    dealt: int = 0
    """So often key groups were dealt unevenly."""
    rescaled_itself: int = 0
    """So often it was by its autoscaler."""
    shrunk: int = 0
    grown: int = 0
    """So often there was room for less, and it grew again."""
    hanging: bool = False
    """Whether the storage still hung when the job was over, so that files may be left."""


class Watch(Protocol):
    """Who looks on."""

    def employed(self, driver: JobDriver, cluster: CooperativeCluster) -> None:
        """A coordinator begins, the first one or another."""
        ...

    def stepped(self) -> None:
        """One unit has done a step. What this raises ends the simulation."""
        ...
