"""Savepoints that somebody waits for: where each is to be, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...checkpoint.folder_storage import folder_at, savepoint_location
from ...checkpoint.savepoints import Savepoint, Stop, is_repeated
from ...core.errors import ConfigurationError

NO_DIRECTORY: Final = (
    "no savepoint was taken: nobody says where to; give savepoint_directory, or the job a default "
    "with env.set_default_savepoint_directory(...) or execution.checkpointing.savepoint-dir"
)

SavepointAnswer = Callable[[str | None, str | None], None]
"""Called once, with the path of the savepoint or the reason why there is none."""


class AskedSavepoints:
    """Of one job. Used from the driver's thread, on which answers are given."""

    def __init__(self, job_id: str, default: str | None) -> None:
        """`default`: the directory where nobody says another."""
        self._job_id = job_id
        self._default = default
        self._waiting: dict[int, tuple[Savepoint, SavepointAnswer]] = {}
        """Requests that are not answered."""
        self._requests = 0
        """Made so far; only grows."""

    def ask(
        self,
        directory: str | None,
        stop: Stop | None,
        answer: SavepointAnswer,
        successor: str | None,
    ) -> Savepoint | None:
        """What the job master is to take, in a new folder below `directory`; None: there can be
        none, as was answered. `successor`: as of `savepoint_location`."""
        directory = directory or self._default
        if directory is None:
            answer(None, NO_DIRECTORY)
            return None
        try:
            location = savepoint_location(directory, self._job_id, successor)
            folder_at(location, "savepoint_directory")
        except ConfigurationError as error:
            answer(None, f"no savepoint was taken: {error}")
            return None
        self._requests += 1
        savepoint = Savepoint(self._requests, location, stop)
        self._waiting[self._requests] = savepoint, answer
        return savepoint

    def answer(self, request: int, path: str | None, error: str | None) -> None:
        """The job master's."""
        _, answer = self._waiting.pop(request)
        answer(path, error)

    def refuse_all(self, why: str, stopped_with: str | None = None) -> None:
        """The job takes none any more. `stopped_with`: the savepoint that it ended with; who asks
        for that again hears of it."""
        waiting, self._waiting = self._waiting, {}
        for one, answer in waiting.values():
            if stopped_with is not None and is_repeated(one.stop, one.location, stopped_with):
                answer(stopped_with, None)
            else:
                answer(None, f"no savepoint was taken: {why}")
