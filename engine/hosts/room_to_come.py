"""Room for tasks that a job does not have yet: their slots, and processes in these.

A rescale asks for it while all tasks run, and stops none before it is there: then nobody waits for
slots, nor for Python and its libraries. What was asked for and nobody wants any more is given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import ray

from ...core.errors import ResourceError
from ...core.failure_text import described
from ...core.ids import TaskId
from ..graph.model import JobGraph
from .cluster_events import ClusterEvent, RoomMade
from .task_maker import TaskMaker


class RoomToCome:
    """Of one job, which runs on a `RayCluster`. Who calls what:

    * the driver's thread, or who does its part before it is there and behind its end: `make`,
      `adopt` and `trim`, which only begin what takes long, `close`, and behind that `release`;
    * whoever starts tasks, the driver or a thread of one deployment: `take`, with `changing` held;
    * whoever says why a start has failed, on any thread: `spare`;
    * a coordinator that would leave, on a thread beside its loop: `release_left`.

    Beside them run threads of its own: `strom-room-<request>`, one for each request, from `make`
    until RoomMade is in the inbox; and `strom-trim`, whenever slots may be needless.

    Two locks, of which nobody holds both. `_rooms` is held while slots that are to come are added,
    or needless ones given back, which takes as long as Ray does: one thread at a time does so, and
    the driver's only at the end. (A deployment reserves what is the job's without it.)
    `changing` is the cluster's and held for moments: a task's process is made either here or where
    it is deployed, and none is once it is settled that there are to be none.
    """

    def __init__(
        self,
        maker: TaskMaker,
        changing: threading.Lock,
        runs: Callable[[TaskId], bool],
        start_error: Callable[[Exception], Exception],
        inbox: Callable[[ClusterEvent], None],
    ) -> None:
        """`changing`: held while actors are made. `runs`: whether the job has an actor for the
        task; called with `changing` held. `start_error`: says what a start has failed by."""
        self._maker = maker
        self._slots = maker.slots
        self._changing = changing
        self._runs = runs
        self._start_error = start_error
        self._inbox = inbox
        self._rooms = threading.Lock()
        """Held while slots that are to come are added, or needless ones given back."""
        self._request: int | None = None
        """The one that is on, or whose room may be used. Set by the driver's thread."""
        self._over: Future[None] = Future()
        """Fails when nobody waits for the last one any more. Set by the driver's thread."""
        maker.cancelled.add_done_callback(lambda cancelled: self._leave())
        self._spare: dict[TaskId, Any] = {}
        """Actors of tasks that the job does not have yet. Changed under `_changing`."""
        self._closed = False
        """Set under `_changing`; there are no spare actors from then on."""
        self.seeks = False
        """Whether slots are asked for that are not there yet. Set under `_rooms`."""

    def make(self, request: int, job: JobGraph) -> None:
        """Begin to have all that tasks of this graph need. RoomMade says that it is there, or why
        not, once for each request, also of one that is over meanwhile."""
        self._leave()
        self._request, self._over = request, (over := Future[None]())
        if self._maker.cancelled.done():
            self._leave()

        def make() -> None:
            why = None
            try:
                with self._rooms:
                    if self._request == request:
                        self.seeks = True
                        self._slots.add_for(job, over)
                        self.seeks = False
                self._warm_up(request, job)
            except ray.exceptions.RayError as error:
                why = described(self._start_error(error))
            except Exception as error:
                why = described(error)
            with self._rooms:
                self.seeks = False
                if self._request is None:
                    self._slots.trim()
            self._inbox(RoomMade(request, why))

        threading.Thread(target=make, name=f"strom-room-{request}", daemon=True).start()

    def _warm_up(self, request: int, job: JobGraph) -> None:
        """The processes of new tasks start before anything stops."""
        with self._changing:
            wanted = not self._closed and self._request == request
            new = [task for task in _tasks_of(job) if not self._runs(task)]
            spare = {task: self._maker.make(task) for task in new} if wanted else {}
            self._spare.update(spare)
        self._maker.warm_up(job, spare)

    def take(self, task: TaskId) -> Any | None:
        """The process that is there for it, which is the caller's from now on."""
        return self._spare.pop(task, None)

    def spare(self) -> Iterator[tuple[TaskId, Any]]:
        """The processes that nobody has taken."""
        yield from list(self._spare.items())

    def adopt(self, job: JobGraph) -> None:
        """The job is this from now on, or still; no request is on. What this graph does not need is
        let go of: none of its processes may be one that the job still knows, as they end with their
        slots."""
        self._request = None
        self._leave()
        self._slots.adopt(job)
        self._end_spare(lambda task: not has_task(job, task))
        self.trim()

    def trim(self) -> None:
        """Begin to give back the slots that the job does not need, unless some are to come."""

        def trim() -> None:
            with self._rooms:
                if not self._closed and self._request is None:
                    self._slots.trim()

        threading.Thread(target=trim, name="strom-trim", daemon=True).start()

    def close(self) -> None:
        """No process is made any more, and those that were made end."""
        with self._changing:
            self._closed = True
        self._end_spare(lambda task: True)

    def release(self) -> None:
        """Give back all slots, once nothing runs in them. Waits for whoever adds some."""
        with self._rooms:
            self._slots.release()

    def release_left(self) -> bool:
        """As of `Slots`; after `release`."""
        with self._rooms:
            return self._slots.release_left()

    def _leave(self) -> None:
        """Nobody waits for the last request: it holds up no other."""
        with suppress(InvalidStateError):  # that is known
            self._over.set_exception(ResourceError("nobody waits for this room any more"))

    def _end_spare(self, needless: Callable[[TaskId], bool]) -> None:
        with self._changing:
            gone = [task for task in self._spare if needless(task)]
            actors = [self._spare.pop(task) for task in gone]
        for actor in actors:
            ray.kill(actor, no_restart=True)


def has_task(job: JobGraph, task: TaskId) -> bool:
    """Whether it is one of the job's."""
    return any(v.id == task.vertex and task.subtask < v.parallelism for v in job.vertices)


def _tasks_of(job: JobGraph) -> list[TaskId]:
    return [TaskId(v.id, i) for v in job.vertices for i in range(v.parallelism)]
