"""Parts of a job that are restarted while the others go on.

    stage      waits for                                 then
    STOPPING   on_tasks_stopped                          WAITING
    WAITING    the restart delay, and the answer to a    LOADING
               StoreCheckpoint that is on its way
    LOADING    on_region_loaded                          PREPARING
    PREPARING  on_readers_ready                          STARTING
    STARTING   TaskRunning of all its tasks              over: it runs

Each region (`regions.py`) has its stage for itself, and begins again under an attempt number of its
own: numbers are the job's, so that a later one is greater wherever two are compared. A task of it
that fails while STARTING sends it back to STOPPING; what its tasks say before that is only how they
end. While any region is restarted no checkpoint is taken, so that all of them go back to the same
one, which is the newest that any sink may have published. If it turns out that this one cannot be
read, or an enumerator cannot be made, the whole job is restarted instead.

What the readers were given since the checkpoint comes to them again ahead of anything new, as soon
as all tasks of the region run; what they ask for before that waits.

The part of a job that is rescaled (`rescaled_part`) begins again in the same way, as one region,
and between its stop and its start the job gets its other graph:

    HELD       move: the new graph is written down       STOPPING
    STOPPING   on_tasks_stopped                          MOVING
    MOVING     adopt                                     WAITING

Of a rescale that another coordinator has begun, and of one that goes back, it is STOPPING at once.

Some of its tasks may *stay*: they stand still from before HELD until they are told, with the start
of the others, to go on with other channels. They are of the region in all that, and heard and told
things meanwhile; of what is said above, only the last line of the first table is for them: it runs
once they have said that they are wired anew. If one of them fails before the job gets its other
graph, all others are stopped, too, and nobody stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ...checkpoint.manifest import Manifest
from ...core.ids import Attempt, TaskId, VertexId
from .actions import CancelTasks, LoadForRegion
from .regions import Reader, Region
from .split_requests import Answer


class Stage(Enum):
    """What a region waits for."""

    HELD = "held"
    STOPPING = "stopping"
    MOVING = "moving"
    WAITING = "waiting"
    LOADING = "loading"
    PREPARING = "preparing"
    STARTING = "starting"


@dataclass
class RegionRestart:
    """`attempt`: of the tasks that are stopped; from LOADING on, of those that come. `at_ms`: not
    before that. `newest`: the last attempt of any task when it began. `manifest`, `own_share`: as
    of a deployment, the latter by vertices. `repeated`: what readers are told when the region runs.
    `asked`: what they ask for until then. `moves`: the job gets another graph before they begin
    again. `stays`: those of the region that do not begin again; `anew`: what does, once it has its
    other graph, None: all."""

    region: Region
    attempt: Attempt
    at_ms: int
    newest: Attempt
    stage: Stage = Stage.STOPPING
    own_share: frozenset[VertexId] = frozenset()
    manifest: Manifest | None = None
    repeated: Sequence[tuple[TaskId, Answer]] = ()
    asked: list[Reader] = field(default_factory=list)
    moves: bool = False
    stays: tuple[TaskId, ...] = ()
    anew: Region | None = None

    @property
    def begins(self) -> Region:
        """What begins again."""
        return self.anew or self.region

    @property
    def ends(self) -> tuple[TaskId, ...]:
        """What is to be stopped."""
        return tuple(task for task in self.region.tasks if task not in self.stays)


class RegionRestarts:
    """Those of one attempt of the job. Invariant: no two of one region."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self._region_of = {task: region for region in regions for task in region.tasks}
        self._own: dict[TaskId, Region] = {}
        """The regions of tasks that begin again as one for a rescale, which they are until then."""
        self._of: dict[TaskId, RegionRestart] = {}
        """By each task of the region."""
        self._all: dict[TaskId, RegionRestart] = {}
        """By the first task of the region, in the order in which they began."""
        self._waiting: dict[TaskId, RegionRestart] = {}
        """Those of `_all` that are WAITING."""

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def all(self) -> list[RegionRestart]:
        """In the order in which they began."""
        return list(self._all.values())

    def region_of(self, task: TaskId) -> Region:
        return self._region_of[task]

    def of(self, task: TaskId) -> RegionRestart | None:
        """The restart that the task is part of."""
        return self._of.get(task)

    def is_ending(self, task: TaskId) -> bool:
        """Whether the task is one that is being stopped, or gone: not yet one that comes."""
        restart = self._of.get(task)
        if restart is None or restart.stage is Stage.STARTING:
            return False
        return task not in restart.stays

    def hears(self, task: TaskId) -> bool:
        """Whether it is told what becomes of checkpoints."""
        restart = self._of.get(task)
        return restart is None or task in restart.stays

    def shared_delay(self, attempt: Attempt) -> int | None:
        """When what waits for its delay now will begin: what fails meanwhile, as with the loss of a
        machine, begins with it. Not what has begun again since, in `attempt`: that is a failure
        of its own."""
        waiting = (Stage.STOPPING, Stage.WAITING)
        found = (r.at_ms for r in self.all if r.stage in waiting and attempt <= r.newest)
        return max(found, default=None)

    def begin(self, region: Region, attempt: Attempt, at_ms: int, newest: Attempt) -> CancelTasks:
        """A task of the region failed in this attempt. `newest`: see RegionRestart."""
        self._put(RegionRestart(region, attempt, at_ms, newest))
        return CancelTasks(attempt, region.tasks)

    def _put(self, restart: RegionRestart) -> None:
        """Instead of one of the region that was on."""
        tasks = restart.region.tasks
        self._take(self._all.get(tasks[0]))
        self._all[tasks[0]] = restart
        self._of.update(dict.fromkeys(tasks, restart))

    def _take(self, restart: RegionRestart | None) -> None:
        if restart is None:
            return
        first, *_ = restart.region.tasks
        del self._all[first]
        self._waiting.pop(first, None)
        for task in restart.region.tasks:
            del self._of[task]

    def find(self, attempt: Attempt, stage: Stage) -> RegionRestart | None:
        """The one with that number in that stage; others are over, or begun anew."""
        found = (one for one in self.all if one.attempt == attempt and one.stage is stage)
        return next(found, None)

    def on_stopped(self, attempt: Attempt, tasks: tuple[TaskId, ...]) -> RegionRestart | None:
        """The answer to CancelTasks; None: to one that is not waited for."""
        restart = self._of.get(tasks[0])
        if restart is None or restart.stage is not Stage.STOPPING or restart.attempt != attempt:
            return None
        if set(tasks) != set(restart.ends):
            return None
        if restart.moves:
            restart.stage = Stage.MOVING
        else:
            restart.stage = Stage.WAITING
            self._waiting[restart.region.tasks[0]] = restart
        return restart

    # --- for a rescale -------------------------------------------------------------------------

    def hold(
        self, tasks: tuple[TaskId, ...], attempt: Attempt, stays: tuple[TaskId, ...] = ()
    ) -> None:
        """These are about to be stopped (`move`), and are not heard any more, but for those that
        stay. None of them is part of a restart, unless all of them are. `attempt`: the newest of
        any."""
        region = Region(tasks)
        # No delay that others could share: what fails meanwhile is a failure of its own.
        none = Attempt(-1)
        self._put(RegionRestart(region, attempt, 0, none, Stage.HELD, moves=True, stays=stays))

    def move(self, first: TaskId) -> CancelTasks:
        """Those that are held are to stop, but for those that stay. `first`: of them."""
        restart = self._of[first]
        restart.stage = Stage.STOPPING
        return CancelTasks(restart.attempt, restart.ends)

    def stay_no_more(self, first: TaskId) -> CancelTasks | None:
        """All that are held are to stop; None: once they are told to (`move`). Before `adopt`."""
        restart = self._of[first]
        restart.stays = ()
        restart.asked.clear()
        return None if restart.stage is Stage.HELD else self.move(first)

    def is_moving(self, first: TaskId) -> bool:
        """Whether those that begin with this task have stopped, and wait for the other graph."""
        restart = self._of.get(first)
        return restart is not None and restart.stage is Stage.MOVING

    def adopt(self, regions: Iterable[Region], then: Region, starts: Region) -> None:
        """The job has these regions from now on; those that are not in `then` it has had. `starts`:
        what of `then` does not stay."""
        restart = self._of[starts.tasks[0]]
        self._take(restart)
        restart.region, restart.stage, restart.moves = then, Stage.WAITING, False
        restart.anew = starts
        self._put(restart)
        self._waiting[then.tasks[0]] = restart
        self._region_of = {task: region for region in regions for task in region.tasks}
        self._own = {task: self._region_of[task] for task in then.tasks}
        self._region_of.update(dict.fromkeys(then.tasks, then))

    # --- from its stop to its start --------------------------------------------------------------

    def load(
        self, now_ms: int, number: Callable[[], Attempt], floor: int, newest: int
    ) -> list[LoadForRegion]:
        """Those whose time has come go on; no checkpoint is being stored."""
        if not self._waiting:
            return []
        due = [one for one in self.all if one.stage is Stage.WAITING and one.at_ms <= now_ms]
        for restart in due:
            del self._waiting[restart.region.tasks[0]]
            restart.attempt, restart.stage = number(), Stage.LOADING
        return [LoadForRegion(restart.attempt, floor, newest) for restart in due]

    def next_ms(self) -> int | None:
        """When `load` should be called."""
        return min((one.at_ms for one in self._waiting.values()), default=None)

    def over(self, restart: RegionRestart) -> None:
        """The region runs."""
        self._take(restart)
        if restart.region.tasks[0] in self._own:
            self._region_of.update(self._own)
            self._own = {}

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        assert len(self._of) == sum(len(restart.region.tasks) for restart in self.all)
        waiting = [restart for restart in self.all if restart.stage is Stage.WAITING]
        assert {id(one) for one in self._waiting.values()} == {id(one) for one in waiting}
        for restart in self.all:
            assert all(self._of[task] is restart for task in restart.region.tasks)
            assert restart.stage is Stage.STARTING or restart.stays or not restart.asked
            assert set(restart.stays) <= set(restart.region.tasks)
            assert restart.moves or restart.stage not in (Stage.HELD, Stage.MOVING)
        assert all(task in self._of for task in self._own)
