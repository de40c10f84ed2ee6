"""A job that gets another parallelism while it runs, as the same job.

    stage          waits for                                then
    RESERVING      on_room: slots for the tasks that come   CHECKPOINTING
    CHECKPOINTING  a checkpoint, taken at once for it       STOPPING
    STOPPING       on_all_stopped                           KEEPING
    KEEPING        on_graph_kept: it is written down        STARTING
    STARTING       TaskRunning of all tasks                 over: it runs at the new parallelism
      fails        the tasks of that attempt are stopped    RETURNING
    RETURNING      on_graph_kept, of the former graph       over: the job restarts as it was

Until STOPPING the job runs as ever, and what goes wrong leaves it as it was: there are no slots,
the checkpoint fails, a task does. From then on this is a restart from that checkpoint, which counts
as none: whatever keeps the new tasks from running, the job goes back to its former parallelism and
the same checkpoint, for nothing was taken or published since.

One that the job's load asks for (`own`) gives way to whoever wants something of the job, as long as
it runs as it was, and does not begin while a savepoint is on.

Who takes over from a coordinator that dies finds in what it has left

    before KEEPING is done        the former graph: the job goes on, or restarts, as it was
    behind that                   the new one, and the former: it goes on with STARTING
    once all tasks run            the new one

and never tasks of one graph as those of the other (`takeover`, by their shape).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...checkpoint.coordinator import CheckpointCoordinator
from ...core.ids import NO_CHECKPOINT, CheckpointId
from ..graph.model import ExecutionGraph
from .actions import Actions, AnswerRescale, KeepGraph, LeaveRoom, MakeRoom
from .lifecycle import Lifecycle, Step
from .rescale_figures import RescaleFigures
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
    `why`: what was wrong with the new one, once the job returns. `own`: nobody asked for it but the
    job's load."""

    request: int | None
    former: ExecutionGraph
    graph: ExecutionGraph
    stage: Stage
    asked_ms: int = 0
    stopped_ms: int = 0
    checkpoint_id: CheckpointId = NO_CHECKPOINT
    why: str = ""
    own: bool = False


class Rescales:
    """Of one job, one after the other."""

    def __init__(self, graph: ExecutionGraph, former: ExecutionGraph | None = None) -> None:
        """`former`: another coordinator has died while the job was to come up with `graph`."""
        self.now: Rescale | None = None
        if former is not None:
            self.now = Rescale(None, former, graph, Stage.STARTING)
        self.done = 0
        """How many went well."""
        self.last: RescaleFigures | None = None

    # --- while the job runs as it was ----------------------------------------------------------

    def begin(
        self,
        request: int,
        former: ExecutionGraph,
        graph: ExecutionGraph,
        now_ms: int,
        own: bool = False,
    ) -> Actions:
        """Somebody wants it, and nothing speaks against it (`why_no_rescale`)."""
        self.now = Rescale(request, former, graph, Stage.RESERVING, now_ms, own=own)
        return (MakeRoom(request, graph),)

    def give_way(self, to: str) -> Actions:
        """Somebody wants something of the job that cannot be while it is rescaled."""
        if self.now is None or not self.now.own or not self.now.stage.runs:
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
        one.stage, one.stopped_ms = Stage.STOPPING, now_ms
        one.checkpoint_id = checkpoints.newest_complete
        return None

    @property
    def stops(self) -> bool:
        """Whether the tasks of the former graph are to stop, or have been told to."""
        return self.now is not None and self.now.stage is Stage.STOPPING

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
                return (KeepGraph(one.graph, one.former),)
            case Stage.RETURNING:
                return (KeepGraph(one.former, None),)
        return ()

    def on_kept(self) -> tuple[ExecutionGraph, Actions]:
        """The graph that the job has from now on."""
        one = self.now
        assert one is not None, "no rescale"
        if one.stage is Stage.KEEPING:
            one.stage = Stage.STARTING
            return one.graph, ()
        why = f"the job is as it was, for at the new parallelism it did not come up: {one.why}"
        return one.former, self.drop(why)

    def returns(self, step: Step, cause: str) -> bool:
        """A failure: whether it is one of the new parallelism, and the job goes back."""
        one = self.now
        starting = step in (Step.LOADING, Step.PREPARING, Step.DEPLOYING)
        if one is None or one.stage is not Stage.STARTING or not starting:
            return False
        one.stage, one.why = Stage.RETURNING, cause
        return True

    # --- its end -------------------------------------------------------------------------------

    def on_running(self, now_ms: int) -> Actions:
        """All tasks run."""
        one = self.now
        if one is None or one.stage is not Stage.STARTING:
            return ()
        self.now = None
        self.done += 1
        before, after = _changes(one.former, one.graph)
        stopped_ms = one.stopped_ms or now_ms
        figures = RescaleFigures(
            before, after, one.checkpoint_id, one.asked_ms or stopped_ms, stopped_ms, now_ms
        )
        self.last = figures
        answer = () if one.request is None else (AnswerRescale(one.request, figures),)
        return (KeepGraph(one.graph, None), *answer)

    def drop(self, why: str) -> Actions:
        """There is none, for this reason."""
        one, self.now = self.now, None
        if one is None:
            return ()
        room = () if one.stage in (Stage.STARTING, Stage.RETURNING) else (LeaveRoom(),)
        if one.request is None:
            return room
        return (*room, AnswerRescale(one.request, error=f"not rescaled: {why}"))

    def validate(self, step: Step) -> None:
        """Assert that its stage fits the step of the job. For use between events."""
        one = self.now
        if one is None:
            assert step is not Step.KEEPING
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
    return None


def why_no_own_rescale(
    life: Lifecycle,
    running: RunningAttempt | None,
    checkpoints: CheckpointCoordinator,
    rescales: Rescales,
) -> str | None:
    """The same of one that nobody asks for but the job's load: a savepoint would fail by it."""
    why = why_no_rescale(life, running, checkpoints, rescales)
    return "a savepoint is being taken" if why is None and checkpoints.saving else why


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
