"""Which readers of one attempt wait for splits, and when their enumerators are asked for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...core.errors import OperatorError
from ...core.ids import Attempt, OperatorId, TaskId
from ..messages import NoMoreSplits, SplitsAssigned
from .actions import AskForSplits, Send

SPLIT_RETRY_MS = 100
"""How long a reader waits before an enumerator that had no splits for it is asked again."""

Answer = SplitsAssigned | NoMoreSplits

Request = tuple[OperatorId, TaskId]


class SplitRequests:
    """A request is asked once the job runs, and again some time after the answer that there is
    nothing now, until the reader gets splits or the word that there will never be any."""

    def __init__(self, attempt: Attempt, sources: Mapping[OperatorId, str]) -> None:
        """`sources`: the operators that may ask, and their names."""
        self._attempt = attempt
        self._sources = sources
        self._waiting: dict[Request, None] = {}
        """Not being asked for now, in order of arrival."""
        self._asked: set[Request] = set()
        """The host owes an answer; none of them is in `_waiting`."""
        self._told: set[Request] = set()
        """Those that have been answered that there are none now."""
        self._started = False
        """Whether requests are asked; until then they wait."""
        self._retry_at_ms: int | None = None
        """When to ask for those that wait; None exactly when there are none or nothing is asked."""

    @property
    def retry_at_ms(self) -> int | None:
        """When `retry` should be called."""
        return self._retry_at_ms

    def request(self, operator: OperatorId, task: TaskId) -> list[AskForSplits]:
        """A reader has no splits left. One that says so twice is heard once."""
        if operator not in self._sources:
            raise OperatorError(operator, task.subtask, "asked for splits but is no source")
        request = (operator, task)
        if request in self._waiting or request in self._asked:
            return []
        if self._started:
            return [self._ask(request)]
        self._waiting[request] = None
        return []

    def start(self) -> list[AskForSplits]:
        """All tasks run: from now on requests are asked, first those that wait."""
        self._started = True
        return self._ask_all()

    def on_answer(
        self, operator: OperatorId, task: TaskId, answer: Answer | None, now_ms: int
    ) -> list[Send]:
        """What the enumerator said; None: it has none now. Unasked answers are ignored. A reader
        is told once that there are none: a restored one reads nothing before its first answer."""
        request = (operator, task)
        if request not in self._asked:
            return []
        self._asked.remove(request)
        if answer is not None:
            return [Send(task, answer)]
        self._waiting[request] = None
        if self._retry_at_ms is None:
            self._retry_at_ms = now_ms + SPLIT_RETRY_MS
        if request in self._told:
            return []
        self._told.add(request)
        return [Send(task, SplitsAssigned(operator, ()))]

    def retry(self, now_ms: int) -> list[AskForSplits]:
        """Ask again for those that wait, if it is time."""
        if self._retry_at_ms is None or now_ms < self._retry_at_ms:
            return []
        return self._ask_all()

    def forget(self, tasks: Collection[TaskId]) -> None:
        """These begin again, and have asked for nothing; answers still on their way are ignored."""
        tasks = frozenset(tasks)
        self._waiting = {one: None for one in self._waiting if one[1] not in tasks}
        self._asked = {one for one in self._asked if one[1] not in tasks}
        self._told = {one for one in self._told if one[1] not in tasks}
        if not self._waiting:
            self._retry_at_ms = None

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        assert (self._retry_at_ms is None) == (not self._waiting or not self._started)
        assert not self._asked & self._waiting.keys()
        assert all(operator in self._sources for operator, _ in [*self._waiting, *self._asked])

    def _ask_all(self) -> list[AskForSplits]:
        waiting, self._waiting = list(self._waiting), {}
        self._retry_at_ms = None
        return [self._ask(request) for request in waiting]

    def _ask(self, request: Request) -> AskForSplits:
        self._asked.add(request)
        return AskForSplits(self._attempt, *request)
