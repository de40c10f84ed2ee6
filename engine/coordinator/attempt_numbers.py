"""The numbers of a job's attempts: what stale messages are told by.

One counts for all tasks, given when they begin together, or for a region that begins again. Numbers
are the job's, over all coordinators that it had: a later one is greater wherever two are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...core.ids import Attempt, TaskId


class AttemptNumbers:
    """Of one job master. Invariant: no task has a number greater than the last one given."""

    def __init__(self, first: int, takes_over: bool = False) -> None:
        """`first`: greater than any of the masters that the job had before. `takes_over`: tasks may
        run in the last one that these have given."""
        self._first = first
        self._takes_over = takes_over
        self._last = first - 1
        """The last one given; one less than the first before that; only grows."""
        self.began = Attempt(self._last)
        """Of the last PrepareSources."""
        self._of: dict[TaskId, Attempt] = {}
        """Those that the tasks have, or had."""
        self._newest = Attempt(self._last)
        """The greatest of these; a task only ever gets a greater one."""
        self._left = Attempt(-1)
        """The greatest that was given by a master before, to tasks that this one has found."""

    @property
    def none_yet(self) -> bool:
        """Whether no attempt has begun."""
        return self._last < self._first

    @property
    def last(self) -> Attempt:
        """The last one given, to all tasks or a region; one less than the first before that."""
        return Attempt(self._last)

    @property
    def newest(self) -> Attempt:
        """The same for people, for whom the job is in its first from the beginning, and in that of
        the tasks that it may have until it is known whether they run."""
        return self.last if self._takes_over else Attempt(max(self._first, self._last))

    def next(self) -> Attempt:
        """Another one."""
        self._last += 1
        return Attempt(self._last)

    def begin(self, tasks: Iterable[TaskId]) -> Attempt:
        """All tasks begin anew."""
        self.began = self.next()
        self._of = dict.fromkeys(tasks, self.began)
        self._newest = self.began
        return self.began

    def take_over(self, found: Mapping[TaskId, Attempt], tasks: Collection[TaskId]) -> None:
        """Tasks run, or ran, in these, which a master before this has given. `tasks`: those of the
        job, which may have had others."""
        self._first = self._last = max(self._last, *found.values())
        self._left = Attempt(self._last)
        self.began = Attempt(self._last)
        self._of = {task: attempt for task, attempt in found.items() if task in tasks}
        self._newest = max(self._of.values(), default=self.began)

    def forget(self) -> None:
        """The job has other tasks from now on, and none of them has begun."""
        self._of.clear()

    def keep(self, tasks: Collection[TaskId]) -> None:
        """The job has these from now on: of the others nothing is known any more."""
        self._of = {task: attempt for task, attempt in self._of.items() if task in tasks}
        self._newest = max(self._of.values(), default=self.began)

    def begin_region(self, tasks: Iterable[TaskId], attempt: Attempt) -> None:
        """These begin again, in one that was given for that."""
        self._of.update(dict.fromkeys(tasks, attempt))
        self._newest = max(self._newest, attempt)

    def of(self, task: TaskId) -> Attempt:
        """The current one of a task, or the last one that it had; before all, the last given."""
        return self._of.get(task, self.last)

    def is_left(self, task: TaskId) -> bool:
        """Whether a master before this has begun it."""
        return self.of(task) <= self._left

    def newest_in(self, tasks: Iterable[TaskId]) -> Attempt:
        """The greatest that one of these has: in a region that was rescaled some have gone on."""
        return max(self.of(task) for task in tasks)

    def newest_of_tasks(self) -> Attempt:
        """The greatest that a task has. Once they have begun."""
        return self._newest

    def validate(self, tasks: Collection[TaskId]) -> None:
        """Assert the invariant. `tasks`: those of the job."""
        assert self._of.keys() <= set(tasks)
        assert all(attempt <= self._last for attempt in self._of.values())
        assert not self._of or self._newest == max(self._of.values())
