"""What a rescale means for the steps of a job (`transitions`): when it stops, goes on, goes back.

How far the rescale is stands in `rescales`, what part of the job it concerns in `rescaled_part`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.checkpointing_mode import CheckpointingMode
from ...core.ids import CheckpointId, OperatorId
from ...core.job_status import JobStatus
from ...state.key_group_deals import Balance
from ..graph.model import ExecutionGraph
from .actions import Actions, AnswerRescale, Warn
from .askers import Asker
from .failures import Failure
from .lifecycle import Step
from .plan import make_plan
from .regions import Region
from .rescaled_part import Part, staying_part_of
from .rescales import Rescales, Stage, exceeds, shortage_of, why_no_rescale
from .running_attempt import NOTHING, RunningAttempt
from .takeover import TakeOver

if TYPE_CHECKING:
    from .transitions import Transitions


class RescaleSteps:
    """Of one job, whose graph and plan change here only; the rest of its transitions is read."""

    def __init__(self, job: Transitions, rescales: Rescales) -> None:
        self._job = job
        self._rescales = rescales

    def rescale(
        self,
        request: int,
        graph: ExecutionGraph,
        asker: Asker,
        balance: Mapping[str, Balance],
        now_ms: int,
    ) -> Actions:
        """The job is to be this."""
        way = () if asker.yields else self._rescales.give_way("another rescale")
        why = self.why_no_rescale(asker)
        if not asker.decides and exceeds(graph.job, self._rescales.wanted.job):
            why = why or "it is to have fewer subtasks by now"
        if not asker.decides and exceeds(self._job.graph.job, graph.job):
            why = why or "it has more subtasks by now"
        if why is not None:
            return (*way, AnswerRescale(request, error=f"not rescaled: {why}"))
        return (
            *way,
            *self._rescales.begin(request, self._job.graph, graph, asker, balance, now_ms),
        )

    def why_no_rescale(self, asker: Asker) -> str | None:
        return why_no_rescale(
            self._job.life, self._job.running, self._job.checkpoints, self._rescales, asker
        )

    def shrink(
        self, smaller: ExecutionGraph, why: str, now_ms: int, region: Region | None = None
    ) -> Actions:
        """Tasks were to be started, all or of a region, and there is room for this only: that is no
        failure."""
        if self._job.life.step not in (Step.DEPLOYING, Step.RUNNING):
            return ()
        if self._rescales.begins(None if region is None else region.tasks[0]):
            return self._job.fail(Failure(f"the job could not be deployed: {why}"), now_ms, region)
        told = self._rescales.shrink(self._job.graph, smaller, why)
        self._job.failures.on_rescale(now_ms)
        news = shortage_of(smaller.job, self._rescales.wanted.job, why) or why
        return (Warn(news), *told, *self._job.stop(JobStatus.RESTARTING, now_ms))

    def on_room(self, request: int, why: str | None, now_ms: int) -> Actions:
        """There is room for it, or there is none."""
        one = self._rescales.now
        if one is None or one.request != request:
            return ()
        others = why_no_rescale(
            self._job.life, self._job.running, self._job.checkpoints, Rescales(self._job.graph)
        )
        if not self._rescales.on_room(request, why or others):
            return self._rescales.drop(why or others or "there is no room for it")
        return self._job.carry_out(self._job.checkpoints.trigger(now_ms, "rescale"), now_ms)

    @property
    def shortage(self) -> str | None:
        """Why the job has fewer subtasks than it is to have; None: it has not."""
        return shortage_of(self._job.graph.job, self._rescales.wanted.job, self._rescales.shortage)

    def on_event(self, now_ms: int) -> Actions:
        """What the last event means for a rescale whose checkpoint is on, or of a part."""
        assert self._job.running is not None
        if self._rescales.part is not None:
            return self._part_on(self._rescales.part, self._job.running, now_ms)
        why = self._rescales.on_checkpoints(self._job.checkpoints, self._job.running, now_ms)
        if why is not None:
            return self._rescales.drop(why)
        if not self._rescales.stops:
            return ()
        part = self._rescales.held()
        if part is None or not self._may_stay:
            splits = self._job.failover.parts_restart(self._job.running, self._job.life.step)
            part = self._rescales.separable() if splits else None
        if part is None:
            self._job.failures.on_rescale(now_ms)
            return self._job.stop(JobStatus.RESTARTING, now_ms)
        kept = self._rescales.keep_part(part)
        held = self._job.running.hold(part.stops, now_ms, part.stays)
        return (*kept, *self._job.after(held, now_ms))

    def on_sources_snapshot(
        self, n: CheckpointId, states: Mapping[OperatorId, bytes], now_ms: int
    ) -> Actions:
        """The enumerators' part of a checkpoint is taken: the tasks take theirs."""
        assert self._job.running is not None
        one, part = self._rescales.now, None
        if (
            one is not None
            and one.stage is Stage.CHECKPOINTING
            and n == self._job.checkpoints.asked
        ):
            part = staying_part_of(one.former, one.graph)
        if part is None or not self._may_stay:
            return self._job.after(self._job.running.on_sources_snapshot(n, states), now_ms)
        self._rescales.hold(part, n, now_ms)
        held = self._job.running.on_sources_snapshot(n, states, part.former)
        return self._job.after(held, now_ms)

    @property
    def _may_stay(self) -> bool:
        """Whether some of what a rescale concerns can stand still behind its checkpoint, and go on
        then."""
        mode, running = self._job.plan.config.checkpoint.mode, self._job.running
        return (
            mode is CheckpointingMode.EXACTLY_ONCE
            and running is not None
            and self._job.life.step is Step.RUNNING
            and not self._job.checkpoints.ending
        )

    def _part_on(self, part: Part, running: RunningAttempt, now_ms: int) -> Actions:
        """It may have stopped, or come up."""
        first = part.stops[0]
        if running.restarts.of(first) is None:
            return self._rescales.on_running(now_ms)
        if not (self._rescales.kept and running.may_adopt(first)):
            return ()
        self._adopt(self._rescales.adopt(), part)
        return self._job.after(running.adopt(self._job.plan, part, now_ms), now_ms)

    def on_graph_kept(self, now_ms: int) -> Actions:
        """It is written down: the job has another graph, or a part of it stops for that."""
        if not self._rescales.on_kept():
            return ()
        if self._job.life.step is Step.KEEPING:
            graph, told = self._rescales.take()
            self._adopt(graph)
            return (*told, *self._job.load())
        if self._job.running is None:
            return ()
        first = self._rescales.stop(now_ms)
        return self._job.after(
            NOTHING if first is None else self._job.running.move(first, now_ms), now_ms
        )

    def _adopt(self, graph: ExecutionGraph, part: Part | None = None) -> None:
        """The job has it from now on. None of its tasks runs, or none of the part."""
        self._job.graph = graph
        self._job.plan = plan = make_plan(self._job.plan.job_id, graph)
        for one in (self._job.starting_point, self._job.translator, self._job.failover):
            one.adopt(plan)
        begin = set(plan.tasks if part is None else part.starts.tasks)
        going = [task for task in plan.tasks if task not in begin]
        self._job.checkpoints.adopt(plan.tasks, plan.labels)
        self._job.history.adopt(plan.tasks, going)
        self._job.figures.adopt(plan.tasks, going)
        if part is None:
            self._job.numbers.forget()
        else:
            self._job.numbers.keep(plan.labels.keys())

    def turn_back(self, failure: Failure, region: Region | None, now_ms: int) -> Actions | None:
        """What becomes of a rescale for whose sake tasks come up, if they do not for this."""
        part, one = self._rescales.part, self._rescales.now
        failed = failure.task if region is None else region.tasks[0]
        why = f"the job goes back to its former parallelism: {failure.cause}"
        if part is None or failed is None:
            if not self._rescales.returns(self._job.life.step, failure.cause):
                return None
            self._job.failures.on_rescale(now_ms)
            return (Warn(why), *self._job.stop(JobStatus.RESTARTING, now_ms))
        if one is None or not part.concerns(failed):
            return None
        assert self._job.running is not None
        if one.stage is Stage.STARTING and self._is_part(part):
            kept = self._rescales.turn_back(failure.cause)
            stopped = self._job.running.stop(part.then.tasks, now_ms)
            return (Warn(why), *kept, *self._job.after(stopped, now_ms))
        if one.stage is Stage.STARTING:
            self._rescales.returns(self._job.life.step, failure.cause)
            self._job.failures.on_rescale(now_ms)
            return (Warn(why), *self._job.stop(JobStatus.RESTARTING, now_ms))
        if failed in part.stays and failure.recoverable:
            return self._stay_no_more(part, failure.cause, now_ms)
        return None

    def _is_part(self, part: Part) -> bool:
        """Whether all that it concerns can begin again while others go on."""
        return self._job.failover.by_regions and len(part.then.tasks) < len(self._job.graph.tasks)

    def _stay_no_more(self, part: Part, cause: str, now_ms: int) -> Actions:
        """A task that stays failed, and the job has its former graph: from the checkpoint, which is
        complete, all that is concerned begins again with the other one."""
        assert self._job.running is not None
        news = Warn(
            f"all tasks that the rescale concerns begin again, as one of them failed: {cause}"
        )
        former = len(part.former) < len(self._job.graph.tasks)
        if not (self._job.failover.by_regions and former):
            self._job.failures.on_rescale(now_ms)
            return (news, *self._job.stop(JobStatus.RESTARTING, now_ms))
        self._rescales.stay_no_more()
        return (news, *self._job.after(self._job.running.stay_no_more(part, now_ms), now_ms))

    # --- behind another coordinator ----------------------------------------------------------

    @property
    def goes_on_in_part(self) -> bool:
        """Whether a rescale that another coordinator has begun may be one of a part."""
        if self._rescales.now is None or not self._job.failover.by_regions:
            return False
        return self._rescales.separable() is not None

    def come_up(
        self, left: TakeOver, running: RunningAttempt, now_ms: int
    ) -> tuple[Actions, Sequence[Failure]]:
        """A rescale is over if all that begins for it runs; else, if the others do, it goes on.
        With that what has failed beside it."""
        if self._rescales.now is None or self._job.life.step is not Step.RUNNING:
            return (), left.failures
        splits = self._job.failover.parts_restart(running, self._job.life.step)
        part = self._rescales.resume() if splits else None
        missing = part and (left.others or any(part.concerns(f.task) for f in left.failures))
        if part is None or not missing:
            return self._rescales.on_running(now_ms), left.failures
        tasks = (*part.starts.tasks, *(t for t in left.others if not part.concerns(t)))
        failures = [one for one in left.failures if not part.concerns(one.task)]
        return self._job.after(running.stop(tasks, now_ms), now_ms), failures
