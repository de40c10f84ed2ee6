"""A job that gets another parallelism while it runs, as the same job.

    stage          waits for                                then
    RESERVING      on_room: slots for the tasks that come   CHECKPOINTING
    CHECKPOINTING  a checkpoint, taken at once for it       STOPPING
    STOPPING       on_all_stopped                           KEEPING
    KEEPING        on_graph_kept: it is written down        STARTING
    STARTING       TaskRunning of all tasks                 over: it runs at the new parallelism
      fails        the tasks of that attempt are stopped    RETURNING
    RETURNING      on_graph_kept, of the former graph       over: the job restarts as it was

Where a part of the job can go on (`rescaled_part`), only the others stop, once it is written down
that they are about to:

    CHECKPOINTING  the same                               KEEPING
    KEEPING        on_graph_kept                          STOPPING
    STOPPING       on_tasks_stopped (`region_restarts`)   STARTING
    STARTING       TaskRunning of all that have stopped   over
      fails        the same                               RETURNING
    RETURNING      the former ones have stopped, the      over: they are as they were
                   others run again

What goes wrong with the others has nothing to do with it, unless the whole job has to begin again:
then the rescale goes on as one of the whole job.

Of the part itself, or of a job that is one, vertices that do not change may *stay*
(`rescaled_part`): only if nothing is on its way behind the checkpoint, as it was aligned or there
was nothing for it to overtake.

    CHECKPOINTING  its checkpoint holds all that are concerned: each takes its part and stands still
      dropped      GoOn: they go on as they were
    KEEPING        the same; channels are as they were until it is written down
    STOPPING       those that change stop
      fails        one of those that stay has: all that are concerned stop, and begin again
    STARTING       those that change start, the others are wired anew and go on at once
      fails        all that are concerned return, from the checkpoint

So a task that is held is told to go on, to stop, or to rewire, whatever happens: by an abort of the
checkpoint or GoOn up to KEEPING, then by the restart that it is part of. A coordinator that takes
over says GoOn to all tasks, for up to KEEPING nothing has happened to them; behind that those that
are not wired anew have the shape of the former graph, and are not gone on with.

A job for which there is too little room (`adaptive`) goes from its deployment to RETURNING, to what
there is room for, and grows by rescales of its own. What it is `wanted` to be is what it was
planned as, or what somebody or its load made of it.

Until STOPPING the job runs as ever, and what goes wrong leaves it as it was: there are no slots,
the checkpoint fails, a task does. From then on this is a restart from that checkpoint, which counts
as none: whatever keeps the new tasks from running, the job goes back to its former parallelism and
the same checkpoint, for nothing was taken or published since.

Who asks for one, and what that gives way to, is said in `askers`.

Who takes over from a coordinator that dies finds in what it has left

    before KEEPING is done        the former graph: the job goes on, or restarts, as it was
    behind that                   the new one, and the former: it goes on with STARTING
    while a part is RETURNING     the former one, and the new: it goes on with that
    once all tasks run            the new one, or the former

and never tasks of one graph as those of the other (`takeover`, by their shape).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ...checkpoint.coordinator import CheckpointCoordinator
from ...core.ids import NO_CHECKPOINT, CheckpointId, TaskId
from ...state.key_group_deals import Balance
from ..graph.model import ExecutionGraph, JobGraph
from ..messages import GoOn
from .actions import Actions, AnswerRescale, KeepGraph, LeaveRoom, MakeRoom, Send
from .askers import Asker
from .handover import Handover
from .lifecycle import Lifecycle, Step
from .rescale_figures import RescaleFigures
from .rescaled_part import Part, part_of
from .running_attempt import RunningAttempt


class Stage(Enum):
    """What a rescale waits for."""

    RESERVING = "reserving"
    CHECKPOINTING = "checkpointing"
    STOPPING = "stopping"
    KEEPING = "keeping"
    STARTING = "starting"
    RETURNING = "returning"

    @property
    def runs(self) -> bool:
        """Whether the job still runs as it was."""
        return self in (Stage.RESERVING, Stage.CHECKPOINTING)


@dataclass
class Rescale:
    """`request`: who is answered; None: nobody any more. `stage` is changed by `Rescales` only.
    `why`: what was wrong with the new one, once the job returns. `part`: what stops, or starts now;
    None: all tasks. `holds`: what stands still behind the checkpoint `held_at`, told so at
    `held_ms`; None: nothing. `overtakes`: whether that has overtaken any records. `balance`: as of
    `RescaleFigures`."""

    request: int | None
    former: ExecutionGraph
    graph: ExecutionGraph
    stage: Stage
    asked_ms: int = 0
    stopped_ms: int = 0
    checkpoint_id: CheckpointId = NO_CHECKPOINT
    why: str = ""
    asker: Asker = Asker.SOMEBODY
    part: Part | None = None
    balance: Mapping[str, Balance] = field(default_factory=dict)
    holds: Part | None = None
    held_at: CheckpointId = NO_CHECKPOINT
    held_ms: int = 0
    overtakes: bool = False


class Rescales:
    """Of one job, one after the other."""

    def __init__(
        self,
        graph: ExecutionGraph,
        left: Handover[ExecutionGraph] | None = None,
    ) -> None:
        """`graph`: what the job is. `left`: what another coordinator has told, which may have died
        while the job was to come up as that."""
        self.now: Rescale | None = None
        left = left or Handover()
        former = left.former
        self._wanted = left.wanted or graph
        if former is not None and left.returns:
            self.now = Rescale(None, graph, former, Stage.RETURNING)
        elif former is not None:
            grows = not exceeds(graph.job, self._wanted.job) and not exceeds(former.job, graph.job)
            asker = Asker.ROOM if grows else Asker.SOMEBODY
            self.now = Rescale(None, former, graph, Stage.STARTING, asker=asker)
        self.shortage = ""
        """Why it is smaller than that, as far as this coordinator knows."""
        self.done = left.rescales
        """How many went well, those under the coordinators before this included."""
        self.last: RescaleFigures | None = None
        self._written = 0
        """KeepGraph that are not answered."""

    # --- while the job runs as it was ----------------------------------------------------------

    def begin(
        self,
        request: int,
        former: ExecutionGraph,
        graph: ExecutionGraph,
        asker: Asker,
        balance: Mapping[str, Balance],
        now_ms: int,
    ) -> Actions:
        """Nothing speaks against it (`why_no_rescale`)."""
        self.now = Rescale(
            request, former, graph, Stage.RESERVING, now_ms, asker=asker, balance=balance
        )
        return (MakeRoom(request, graph),)

    def give_way(self, to: str) -> Actions:
        """Somebody wants something of the job that cannot be while it is rescaled."""
        if self.now is None or not self.now.asker.yields or not self.now.stage.runs:
            return ()
        return self.drop(f"it gave way to {to}")

    def on_room(self, request: int, why: str | None) -> bool:
        """The answer to MakeRoom; whether the checkpoint is to be taken."""
        one = self.now
        if one is None or one.request != request or one.stage is not Stage.RESERVING or why:
            return False
        one.stage = Stage.CHECKPOINTING
        return True

    def on_checkpoints(
        self, checkpoints: CheckpointCoordinator, running: RunningAttempt, now_ms: int
    ) -> str | None:
        """Something happened while the job runs: what it fails of, if it does. The stage is
        STOPPING once its checkpoint is complete."""
        one = self.now
        if one is None or one.stage is not Stage.CHECKPOINTING:
            return None
        if running.restarts:
            return "a part of the job failed meanwhile"
        if running.progress.all_drained:
            return "the job is finishing"
        asked = checkpoints.asked
        if asked is None or asked in checkpoints.pending:
            return None
        if checkpoints.newest_complete < asked:
            return f"{checkpoints.statistics().last_failure or 'its checkpoint failed'}"
        one.stage, one.stopped_ms = Stage.STOPPING, one.held_ms or now_ms
        one.checkpoint_id = checkpoints.newest_complete
        return None

    def hold(self, part: Part, checkpoint_id: CheckpointId, now_ms: int) -> None:
        """All that it concerns will stand still behind its checkpoint."""
        one = self._one
        assert one.stage is Stage.CHECKPOINTING, one.stage
        one.holds, one.held_at, one.held_ms = part, checkpoint_id, now_ms

    def held(self) -> Part | None:
        """What stands still, now that the checkpoint is complete, with nothing on its way to it.
        None: nothing, or not all, as a later one is complete."""
        one = self._one
        return one.holds if one.held_at == one.checkpoint_id and not one.overtakes else None

    def on_overtaken(self, checkpoint_id: CheckpointId) -> None:
        """A barrier of this one has overtaken records, which no task has in its state."""
        if self.now is not None and self.now.held_at == checkpoint_id:
            self.now.overtakes = True

    @property
    def stops(self) -> bool:
        """Whether the tasks of the former graph are to stop, or have been told to."""
        return self.now is not None and self.now.stage is Stage.STOPPING

    def shrink(self, graph: ExecutionGraph, smaller: ExecutionGraph, why: str) -> Actions:
        """There is room for this only: what is told of a rescale that was on. None is that what
        had no room is to come up for (`begins`)."""
        dropped = self.drop("there is less room than before")
        self.now = Rescale(None, smaller, graph, Stage.RETURNING)
        self.shortage = why
        return dropped

    @property
    def _one(self) -> Rescale:
        assert self.now is not None, "no rescale"
        return self.now

    def begins(self, task: TaskId | None) -> bool:
        """Whether a task (None: all) is about to come up for one, and is not to return."""
        one = self.now
        if one is None or one.stage.runs or one.stage is Stage.RETURNING:
            return False
        return one.part is None or one.part.concerns(task)

    @property
    def wanted(self) -> ExecutionGraph:
        """What the job is to be when there is room for it."""
        one = self.now
        if one is None or not one.asker.decides:
            return self._wanted
        begun = one.stage is Stage.STOPPING and one.part is not None
        return one.graph if begun or one.stage in (Stage.KEEPING, Stage.STARTING) else self._wanted

    @property
    def settled(self) -> ExecutionGraph:
        """The same, and what it stays if what it is about to be does not come up."""
        return self._wanted

    def on_kept(self) -> bool:
        """The answer to a KeepGraph: whether none is owed."""
        self._written = max(0, self._written - 1)
        return self.kept

    @property
    def kept(self) -> bool:
        """Whether all is written down that was to be."""
        return self._written == 0

    def _keep(
        self, graph: ExecutionGraph, other: ExecutionGraph | None, returns: bool = False
    ) -> Actions:
        self._written += 1
        return (KeepGraph(graph, other, returns),)

    # --- of a part -------------------------------------------------------------------------------

    @property
    def part(self) -> Part | None:
        """What stops, or starts now, while the others go on."""
        return None if self.now is None else self.now.part

    def separable(self) -> Part | None:
        """What is to stop, if the others can go on."""
        return part_of(self._one.former, self._one.graph)

    def keep_part(self, part: Part) -> Actions:
        """Its checkpoint is complete, and only this is about to stop."""
        one = self._one
        assert one.stage is Stage.STOPPING, one.stage
        one.part, one.stage = part, Stage.KEEPING
        return self._keep(one.graph, one.former)

    def stop(self, now_ms: int) -> TaskId | None:
        """It is written down: the first of those that are to stop now, if any are."""
        one = self.now
        if one is None or one.part is None or one.stage is not Stage.KEEPING:
            return None
        one.stage, one.stopped_ms = Stage.STOPPING, one.held_ms or now_ms
        return one.part.stops[0]

    def stay_no_more(self) -> None:
        """All that it concerns begins again."""
        one = self._one
        assert one.part is not None, "no part"
        one.part = one.part.without_stays()

    def resume(self) -> Part | None:
        """Of one that a coordinator before has begun: what comes up, with what was to stop for
        that; None: all tasks."""
        one = self._one
        back = one.stage is Stage.RETURNING
        now, then = (one.graph, one.former) if back else (one.former, one.graph)
        one.part = part_of(now, then)
        return one.part

    def adopt(self) -> ExecutionGraph:
        """The part has stopped: what the job is from now on."""
        one = self._one
        if one.stage is Stage.RETURNING:
            return one.former
        one.stage = Stage.STARTING
        return one.graph

    def turn_back(self, cause: str) -> Actions:
        """A task of the part failed, or could not be started: the part returns."""
        one = self._one
        assert one.stage is Stage.STARTING, one.stage
        one.stage, one.why, one.part = Stage.RETURNING, cause, part_of(one.graph, one.former)
        return self._keep(one.former, one.graph, returns=True)

    def widen(self) -> None:
        """All tasks stop."""
        one = self.now
        if one is not None and one.part is not None:
            one.part = None
            one.stage = Stage.STOPPING if one.stage is Stage.KEEPING else one.stage

    # --- between two attempts ------------------------------------------------------------------

    def keep(self) -> Actions:
        """No task runs: what is to be written down before others do; nothing if no graph changes
        now."""
        one = self.now
        if one is None:
            return ()
        match one.stage:
            case Stage.STOPPING:
                one.stage = Stage.KEEPING
                return self._keep(one.graph, one.former)
            case Stage.RETURNING:
                return self._keep(one.former, None)
        return ()

    def take(self) -> tuple[ExecutionGraph, Actions]:
        """The graph that the job has from now on."""
        one = self._one
        if one.stage is Stage.KEEPING:
            one.stage = Stage.STARTING
            return one.graph, ()
        return one.former, self.drop(_as_it_was(one))

    def returns(self, step: Step, cause: str) -> bool:
        """A failure of the whole job: whether it is one of the new parallelism, and the job goes
        back."""
        one = self.now
        starting = step in (Step.LOADING, Step.PREPARING, Step.DEPLOYING)
        if one is None or one.stage is not Stage.STARTING or not (starting or one.part):
            return False
        one.stage, one.why = Stage.RETURNING, cause
        return True

    # --- its end -------------------------------------------------------------------------------

    def on_running(self, now_ms: int) -> Actions:
        """All tasks run, or the part does."""
        one = self.now
        if one is None or one.stage not in (Stage.STARTING, Stage.RETURNING):
            return ()
        if one.stage is Stage.RETURNING:
            return (*self._keep(one.former, None), *self.drop(_as_it_was(one)))
        self._wanted, self.now = self.wanted, None
        self.done += 1
        before, after = _changes(one.former, one.graph)
        stopped_ms = one.stopped_ms or now_ms
        stopped = one.former.tasks if one.part is None else one.part.stops
        held = () if one.part is None else one.part.stays
        figures = RescaleFigures(
            before,
            after,
            one.checkpoint_id,
            one.asked_ms or stopped_ms,
            stopped_ms,
            now_ms,
            len(stopped),
            len(one.former.tasks) - len(stopped) - len(held),
            one.balance,
            held_tasks=len(held),
        )
        self.last = figures
        answer = () if one.request is None else (AnswerRescale(one.request, figures),)
        return (*self._keep(one.graph, None), *answer)

    def drop(self, why: str) -> Actions:
        """There is none, for this reason."""
        one, self.now = self.now, None
        if one is None:
            return ()
        told: Actions = () if one.stage in (Stage.STARTING, Stage.RETURNING) else (LeaveRoom(),)
        if one.holds is not None and one.stage is Stage.CHECKPOINTING:
            free = GoOn(one.held_at)
            told = (*told, *(Send(task, free) for task in one.holds.former))
        if one.request is None:
            return told
        return (*told, AnswerRescale(one.request, error=f"not rescaled: {why}"))

    def validate(self, step: Step) -> None:
        """Assert that its stage fits the step of the job. For use between events."""
        one = self.now
        if one is None:
            assert step is not Step.KEEPING
            return
        if one.part is not None:
            assert step is Step.RUNNING, step
            assert not one.stage.runs, one.stage
            return
        assert not one.stage.runs or step is Step.RUNNING, (one.stage, step)
        assert one.stage is not Stage.STOPPING or step in (Step.STOPPING, Step.WAITING)
        assert one.stage is not Stage.KEEPING or step is Step.KEEPING
        assert one.stage is not Stage.STARTING or step is not Step.RUNNING


def why_no_rescale(
    life: Lifecycle,
    running: RunningAttempt | None,
    checkpoints: CheckpointCoordinator,
    rescales: Rescales,
    asker: Asker = Asker.SOMEBODY,
) -> str | None:
    """Why a job cannot be rescaled in this state; None: it can."""
    if rescales.now is not None:
        return "it is being rescaled already: ask again when that is done"
    if life.step is not Step.RUNNING or running is None:
        return f"the job is {life.status.value}, and not running: ask again when it is"
    if running.restarts:
        return "a part of the job is being restarted: ask again when it runs"
    if running.progress.all_drained:
        return "the job is finishing"
    if checkpoints.ending:
        return "the job is being stopped with a savepoint"
    if asker.yields and checkpoints.saving:
        return "a savepoint is being taken"  # it would fail by it
    return None


def exceeds(job: JobGraph, wanted: JobGraph) -> bool:
    """Whether it has more subtasks somewhere."""
    pairs = zip(job.vertices, wanted.vertices, strict=True)
    return any(one.parallelism > other.parallelism for one, other in pairs)


def shortage_of(job: JobGraph, wanted: JobGraph, why: str) -> str | None:
    """That a job has fewer subtasks than it is to have, and why; None: it has as many."""
    if job is wanted:
        return None
    pairs = [
        (now.parallelism, one.parallelism)
        for now, one in zip(job.vertices, wanted.vertices, strict=True)
        if now.parallelism < one.parallelism
    ]
    if not pairs:
        return None
    few, many = (max(side) for side in zip(*pairs, strict=True))
    return f"runs with {few} of {many}" + (f": {why}" if why else "")


def _as_it_was(one: Rescale) -> str:
    return f"the job is as it was, for at the new parallelism it did not come up: {one.why}"


def _changes(
    former: ExecutionGraph, graph: ExecutionGraph
) -> tuple[dict[str, int], dict[str, int]]:
    pairs = [
        (old, new)
        for old, new in zip(former.job.vertices, graph.job.vertices, strict=True)
        if old.parallelism != new.parallelism
    ]
    return (
        {old.name: old.parallelism for old, _ in pairs},
        {new.name: new.parallelism for _, new in pairs},
    )
