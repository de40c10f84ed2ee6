"""The job's task actors, as its coordinator sees them: placed, started, watched, stopped.

Runs inside the coordinator actor. Its driver's thread calls the `Cluster` methods; what takes time
or happens by itself (an actor's death, the end of an attempt) runs on the actor's asyncio loop and
comes back as an event in the coordinator's inbox.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray

from ...core import code_pickles
from ...core.config import JobConfig
from ...core.errors import FencedError, JobCancelledError
from ...core.ids import Attempt, TaskId
from ..accounts import TaskAccount
from ..exchange.encryption import issue
from ..graph.model import JobGraph
from ..messages import Mail, TaskFailed
from ..task.deployment import TaskDeployment
from .adaptive_slots import slots_for
from .cluster_events import (
    AllStopped,
    ClusterEvent,
    NotDeployed,
    Reached,
    TaskLost,
    TasksStopped,
)
from .control_service import patiently
from .job_record import JobRecord
from .kept_slots import KeptSlots
from .last_words import Whereabouts, how_it_died
from .left_tasks import ask_all, sort_out, tasks_of
from .mail import rewired, sealed
from .node_deaths import death_of
from .ray_task import Admittance
from .ready_tasks import Taker, fits
from .resequencer import Numbering
from .room_to_come import RoomToCome, has_task
from .sent_files import SentFiles
from .shipped_code import PackedCode
from .task_maker import TaskMaker, start_error

log = logging.getLogger("strom")

LEAVE_S = 5.0
"""How long the processes of a job that is over may take to remove its files."""


@dataclass(frozen=True)
class _Begun:
    """A task that is being started, or that `stays` and gets other channels; `prepared`: the
    reference to how it is reached."""

    deployment: TaskDeployment
    actor: Any
    prepared: Any
    stays: bool = False


class _Superseded(Exception):
    """Nobody wants these tasks to start any more."""


class RayCluster:
    """Implements the driver's `Cluster` with one Ray actor per task.

    Invariant: `_actors` holds every actor that may be alive; an actor leaves it when it is dead or
    has been killed.
    """

    def __init__(
        self,
        job: JobGraph,
        secret: bytes,
        loop: asyncio.AbstractEventLoop,
        inbox: Callable[[ClusterEvent], None],
        coordinator: Any,
        name: str,
        code: Sequence[PackedCode] = (),
        files: SentFiles | None = None,
        slots: KeptSlots | None = None,
        term: int = 0,
        note: Callable[[Attempt], None] = lambda attempt: None,
        planned: JobGraph | None = None,
        record: JobRecord | None = None,
    ) -> None:
        """`name`: of the coordinator, and of its slots unless there are `slots` that stay. `code`:
        what the tasks import from. `files`: what they have beside them. `term`: greater than that
        of all coordinators that the job had before. `note`: told of each attempt before it
        begins. `planned`: as of `Slots`; None: it is the job still. `record`: as of `Tie`."""
        self._note = note
        self._name = name
        self._term = term
        self._job = job
        self._config: JobConfig = job.config
        self._loop = loop
        self._inbox = inbox
        self._coordinator = coordinator
        self._slots = slots_for(planned or job, name, slots, job)
        self._actors: dict[TaskId, Any] = {}
        self._processes: dict[TaskId, Whereabouts] = {}
        """Where the tasks run or, until they are started anew, ran."""
        self._nodes: dict[TaskId, str] = {}
        """On which (Ray's id) the actors were started."""
        self._down: set[str] = set()
        """Those that are dead; Ray may not know it yet."""
        self._starting: set[str] = set()
        """The ids of actors of which whoever starts their tasks hears if their node dies."""
        self._losing = asyncio.Lock()
        """One death after the other: the first may tell of many."""
        self._newest: dict[TaskId, str] = {}
        """The ids of the actors that were started last, dead or alive."""
        self._attempts: dict[TaskId, Attempt] = {}
        """In which each task was deployed last."""
        self._numbers: dict[tuple[TaskId, Attempt], Numbering] = {}
        """Of the mail to each task in its current attempt."""
        self._looked = term == 0
        """Whether it is known what a coordinator before this has left."""
        self._abandoned: dict[TaskId, Attempt] = {}
        """Up to which each task is to start no more."""
        self._closed = False
        self._may_take = slots is not None
        """Whether its tasks may have processes that a session keeps ready: what those print goes
        where the session's does."""
        self._changing = threading.Lock()
        """Held while actors are made, or it is settled that none are any more."""
        self._cancelled: Future[None] = Future()
        """Fails, for good, when the job is to end: then `deploy` waits for nothing any more."""
        certificate = issue() if self._config.exchange.encrypted else None
        self._maker = TaskMaker(
            name,
            term,
            coordinator,
            self._config,
            self._slots,
            ray.put(tuple(code)) if code else (),
            files,
            Admittance(secret, certificate),
            self._cancelled,
            record,
        )
        self._to_come = RoomToCome(
            self._maker, self._changing, lambda task: task in self._actors, self._start_error, inbox
        )

    def on_cancelled(self) -> None:
        """Make a `deploy` that waits give up. Thread-safe."""
        with suppress(InvalidStateError):  # it was before
            self._cancelled.set_exception(
                JobCancelledError("the job was cancelled while it was being deployed")
            )

    # --- what another coordinator has left ---------------------------------------------------

    def take_over(self) -> list[TaskAccount]:
        """What the tasks say that run; from now on they hear this coordinator. A process that does
        not answer, or has nothing to do, is ended. FencedError if they hear a later one."""
        self._looked = True
        said = ask_all(tasks_of(self._name), self._coordinator, self._term)
        found, others = sort_out(said, partial(has_task, self._job))
        for task, (_, answer) in found.items():
            self._maker.admittance = answer.admittance or self._maker.admittance
            self._processes[task] = answer.process
            account = answer.account
            self._attempts[task] = Attempt(-1) if account is None else account.attempt
        if found:
            self._slots.find()
            self._nodes = self._slots.nodes()
            self._to_come.trim()
        for task, (actor, _) in found.items():
            self._keep(task, actor)
        return others + [one.account for _, one in found.values() if one.account is not None]

    # --- what the driver asks for ----------------------------------------------------------

    def deploy(self, deployments: Sequence[TaskDeployment]) -> None:
        """Start what is missing, wire all. Raises ResourceError or Ray's errors. If a node dies
        meanwhile, what was to start there starts elsewhere: that is no failure."""
        self._slots.reserve(self._cancelled, self._down)
        self._announce(deployments)
        self._start(deployments, self._prepare(deployments))

    def deploy_beside(
        self, deployments: Sequence[TaskDeployment], stays: Sequence[TaskDeployment] = ()
    ) -> None:
        """The same on a thread of its own: a process may take long to start, and the driver has
        others to hear. Of a failure it hears by NotDeployed, and by Reached of what is to be told
        to those that stay."""
        self._announce(deployments)
        there = not self._slots.lost(self._down)
        try:
            begun = self._prepare(deployments, stays) if there else None
        except _Superseded:
            return
        attempt = deployments[0].attempt

        def start() -> None:
            try:
                self._start(deployments, begun, stays)
            except _Superseded:
                pass
            except Exception as error:
                self._inbox(NotDeployed(attempt, error))

        threading.Thread(target=start, name=f"strom-deploy-{attempt}", daemon=True).start()

    def make_room(self, request: int, job: JobGraph) -> None:
        """On threads of its own. With the slots come the processes of the tasks that are new, so
        that nobody waits for them once the others have stopped."""
        self._to_come.make(request, job)

    def adopt(self, job: JobGraph) -> None:
        """The job is this from now on, or still."""
        self._job = job
        for task, actor in list(self._actors.items()):
            if not has_task(job, task) and self._drop(task, actor):
                ray.kill(actor, no_restart=True)
        self._to_come.adopt(job)

    @property
    def added(self) -> dict[str, float]:
        """As of `Slots`."""
        return self._slots.added

    @property
    def seeks(self) -> bool:
        """Whether slots are asked for that are not there yet."""
        return self._to_come.seeks

    def _announce(self, deployments: Sequence[TaskDeployment]) -> None:
        """On the driver's thread."""
        self._note(deployments[0].attempt)
        self._maker.storage = deployments[0].storage
        tasks = {d.task for d in deployments}
        self._attempts.update({d.task: d.attempt for d in deployments})
        self._numbers = {of: n for of, n in self._numbers.items() if of[0] not in tasks}

    def _start(
        self,
        deployments: Sequence[TaskDeployment],
        begun: list[_Begun] | None,
        stays: Sequence[TaskDeployment] = (),
    ) -> None:
        """From where the tasks are prepared (None: wait for their slots first) to where they run.
        On any thread. _Superseded if they are not to start any more."""
        answers: list[Any] | None = None
        while answers is None:
            if begun is None:
                self._slots.reserve(self._cancelled, self._down)
                begun = self._prepare(deployments, stays)
            try:
                answers = self._maker.wait([one.prepared for one in begun])
            except ray.exceptions.RayError as error:
                if not self._lost_with_node(error):
                    raise self._start_error(error) from None
                begun = None
        assert begun is not None
        try:
            self._wire(begun, answers)
        except ray.exceptions.RayError as error:
            raise self._start_error(error) from None

    def _prepare(
        self, deployments: Sequence[TaskDeployment], stays: Sequence[TaskDeployment] = ()
    ) -> list[_Begun]:
        """Begin to start what is missing."""
        # One that dies meanwhile leaves `_actors`: whoever calls it is told of that by Ray.
        several, nodes = self._slots.on_several_machines(), self._slots.nodes()
        taker = Taker(self._name) if self._may_take else None
        with self._changing:
            if self._closed or any(not self._is_wanted(d) for d in deployments):
                raise _Superseded
            staying = {d.task: self._actors.get(d.task) for d in stays}
            if None in staying.values():
                raise _Superseded  # the driver hears that it is lost
            actors: dict[TaskId, Any] = {
                d.task: self._actors.get(d.task) or self._create(d.task, nodes[d.task], taker)
                for d in deployments
            }
            self._starting.update(actor._actor_id.hex() for actor in actors.values())
            actors.update(staying)

        def begun(d: TaskDeployment, stays: bool) -> _Begun:
            actor, scope = actors[d.task], replace(d.log_scope, attempt=None)
            return _Begun(d, actor, self._maker.prepare(d.task, actor, several, scope), stays)

        return [*(begun(d, False) for d in deployments), *(begun(d, True) for d in stays)]

    def _is_wanted(self, d: TaskDeployment) -> bool:
        abandoned = self._abandoned.get(d.task, Attempt(-1))
        return self._attempts[d.task] == d.attempt > abandoned

    def _wire(self, begun: Sequence[_Begun], answers: Sequence[Any]) -> None:
        """All can be reached: tell them of each other."""
        self._starting.difference_update(one.actor._actor_id.hex() for one in begun)
        by_task = {}
        for one, (address, process) in zip(begun, answers, strict=True):
            by_task[one.deployment.task] = address
            self._processes[one.deployment.task] = process
        started = []
        for one in begun:
            d = one.deployment
            peers = {c.target: by_task[c.target] for c in d.outputs}
            call = one.actor.deploy
            if not one.stays:
                data = code_pickles.dumps(d)
                started.append(call.remote(data, peers, self._coordinator, self._term))
        self._maker.wait(started)
        stays = [one.deployment for one in begun if one.stays]
        mails = tuple((d.task, self._attempts[d.task], rewired(d, by_task)) for d in stays)
        if mails:
            self._inbox(Reached(mails))

    def _lost_with_node(self, error: Exception) -> bool:
        """Whether a process that was being started is gone because its node is, with all that was
        being started there: it is to start elsewhere."""
        known = getattr(error, "actor_id", None)
        node = next((self._nodes[t] for t, one in self._newest.items() if one == known), "")
        death = death_of(node)
        if death is None:
            return False
        log.warning("a task could not start, and starts elsewhere: %s", death)
        self._down.add(node)
        with self._changing:
            for task, actor in list(self._actors.items()):
                if self._nodes[task] == node and actor._actor_id.hex() in self._starting:
                    self._drop(task, actor)
        return True

    def _drop(self, task: TaskId, actor: Any) -> bool:
        """Its process is gone; whether that is news."""
        if self._actors.get(task) is not actor:
            return False
        self._starting.discard(self._actors.pop(task)._actor_id.hex())
        return True

    def _start_error(self, error: Exception) -> Exception:
        """Why a task could not start."""
        return start_error(error, self._job, self._death_at_start)

    def _death_at_start(self, error: Any) -> str:
        spare = {task: one._actor_id.hex() for task, one in self._to_come.spare()}
        begun = [*self._newest.items(), *spare.items()]
        dead = [task for task, known in begun if known == error.actor_id]
        if not dead:
            return f"a task could not start: {how_it_died(None, str(error))}"
        (task,) = dead
        name = self._job.vertex(task.vertex).name
        return f"task {name}, subtask {task.subtask}, could not start: {self._death(task, error)}"

    def _create(self, task: TaskId, node: str, taker: Taker | None) -> Any:
        """Or one that is there for it already, or for whoever takes it."""
        actor = self._to_come.take(task)
        if actor is None and taker is not None and fits(self._slots.bundle(task)):
            actor = taker.take(node)
        actor = actor or patiently(lambda: self._maker.make(task))
        self._processes.pop(task, None)
        self._nodes[task] = node
        self._keep(task, actor)
        return actor

    def _keep(self, task: TaskId, actor: Any) -> None:
        self._actors[task] = actor
        self._newest[task] = actor._actor_id.hex()
        asyncio.run_coroutine_threadsafe(self._watch(task, actor), self._loop)

    async def _watch(self, task: TaskId, actor: Any) -> None:
        try:
            await actor.hold.remote()
        except ray.exceptions.RayError as error:
            await self._lose(task, actor, error)

    async def _lose(self, task: TaskId, actor: Any, error: Exception) -> None:
        """Its process is gone, or cannot be reached: then it is ended, for what takes its place
        needs its slot. If its node is gone, then so are all tasks there: Ray tells of them one by
        one, and of some only once it knows."""
        async with self._losing:
            if self._actors.get(task) is not actor:
                return
            node = self._nodes.get(task, "")
            death = await asyncio.to_thread(death_of, node)
            if death is None:
                if self._drop(task, actor):
                    ray.kill(actor, no_restart=True)
                    self._tell(task, self._death(task, error))
                return
            self._down.add(node)
            for other, gone in list(self._actors.items()):
                heard = gone._actor_id.hex() in self._starting
                if self._nodes.get(other) == node and self._drop(other, gone):
                    ray.kill(gone, no_restart=True)
                    if not heard:
                        self._tell(other, death)

    def _tell(self, task: TaskId, reason: str) -> None:
        self._inbox(TaskLost(task, self._attempts[task], reason))

    def _death(self, task: TaskId, error: Exception) -> str:
        return how_it_died(self._processes.get(task), str(error))

    def cancel_all(self, attempt: Attempt) -> None:
        with self._changing:
            self._abandoned = dict.fromkeys(self._attempts, attempt)
            actors = list(self._actors.items())
        stopping = self._stop(actors, attempt, AllStopped(attempt))
        asyncio.run_coroutine_threadsafe(stopping, self._loop)

    def cancel_tasks(self, tasks: Sequence[TaskId], attempt: Attempt) -> None:
        with self._changing:
            self._abandoned.update(dict.fromkeys(tasks, attempt))
            known = [(task, self._actors.get(task)) for task in tasks]
        actors = [(task, actor) for task, actor in known if actor is not None]
        stopping = self._stop(actors, attempt, TasksStopped(tuple(tasks), attempt))
        asyncio.run_coroutine_threadsafe(stopping, self._loop)

    async def _stop(
        self, actors: Sequence[tuple[TaskId, Any]], attempt: Attempt, done: ClusterEvent
    ) -> None:
        limit = self._config.cancellation_timeout.total_seconds()
        await asyncio.gather(*(self._stop_one(*one, attempt, limit) for one in actors))
        self._inbox(done)

    async def _stop_one(self, task: TaskId, actor: Any, attempt: Attempt, limit: float) -> None:
        """A task that does not stop in time loses its process. One whose process is gone already
        may be why the attempt is stopped: that comes before AllStopped."""
        try:
            await asyncio.wait_for(_as_future(actor.cancel.remote(attempt, self._term)), limit)
        except TimeoutError:
            self._drop(task, actor)
            ray.kill(actor, no_restart=True)
        except ray.exceptions.RayError as error:
            await self._lose(task, actor, error)

    def send(self, task: TaskId, attempt: Attempt, mail: Mail) -> None:
        actor = self._actors.get(task)
        if actor is None:
            return
        match sealed(mail, task, attempt, self._job.vertex(task.vertex)):
            case TaskFailed() as failure:
                self._inbox(failure)
            case letter:
                numbers = self._numbers.setdefault((task, attempt), Numbering())
                post, term = actor.post.remote, self._term
                numbers.send(lambda number: post(term, attempt, number, letter))

    # --- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Kill all actors and free the slots, also those that another coordinator has left; none if
        there is a later one, whose they are."""
        self.on_cancelled()
        overtaken = False
        if not self._looked:
            try:
                self.take_over()
            except FencedError:
                overtaken = True
            except ray.exceptions.RayError:  # they end by themselves, behind this process
                pass
        self._to_come.close()
        with self._changing:
            self._closed = True
            actors, self._actors = self._actors, {}
        files, self._maker.files = self._maker.files, None
        if files is not None or self._config.checkpoint.keeps_copies:
            leaving = [actor.leave.remote() for actor in actors.values()]
            wait([ref.future() for ref in leaving], LEAVE_S)  # what is left, the next job removes
        for actor in actors.values():
            ray.kill(actor, no_restart=True)
        if not overtaken:
            self._to_come.release()

    def release_left(self) -> bool:
        """As of `Slots`; after `close`."""
        return self._to_come.release_left()


def _as_future(ref: Any) -> asyncio.Future[Any]:
    future: Future[Any] = ref.future()
    return asyncio.wrap_future(future)
