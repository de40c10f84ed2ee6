"""What the hosts' clients have in common where savepoints are asked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from ...checkpoint.savepoints import Stop, is_repeated
from ...core.answered import CompletableFuture, Promise
from ...core.checks import check_kind
from ...core.errors import CheckpointError, ConfigurationError
from .job_outcome import JobOutcome


def absolute(directory: str | None) -> str | None:
    """As the program means it that names a directory: tasks have other working directories."""
    check_kind("savepoint_directory", directory, str, type(None))
    if directory is None or "://" in directory or "::" in directory:
        return directory
    if not directory:
        raise ConfigurationError("savepoint_directory is empty: give an fsspec URL or path")
    return os.path.abspath(os.path.expanduser(directory))


class SavepointCalls(ABC):
    """The two calls of a job's client, over one that its host answers."""

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._savepoint(absolute(savepoint_directory), None)

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        drain: bool | None = None,
    ) -> CompletableFuture[str]:
        check_kind("advance_to_end_of_event_time", advance_to_end_of_event_time, bool)
        check_kind("drain", drain, bool, type(None))
        drains = advance_to_end_of_event_time if drain is None else drain
        return self._savepoint(absolute(savepoint_directory), "drain" if drains else "halt")

    @abstractmethod
    def _savepoint(self, directory: str | None, stop: Stop | None) -> CompletableFuture[str]:
        """The folder of a savepoint below an absolute directory, or the job's default; `stop` says
        whether the job ends with it."""


def refused(job: str, why: str) -> Promise[str]:
    """The answer of a job that takes no savepoints any more."""
    promise: Promise[str] = Promise()
    answer(promise, job, None, f"no savepoint was taken: {why}")
    return promise


def answered_by_end(
    outcome: JobOutcome, directory: str | None, stop: Stop | None
) -> tuple[str | None, str | None]:
    """What a coordinator would have answered that took the question into the job's end: the path of
    the savepoint that it ended with, if that is what was wanted, or why there is none. `directory`:
    None is the job's default, which is not known here."""
    done = outcome.stopped_with
    if done is not None:
        wanted = done if directory is None else f"{directory.rstrip('/')}/any"
        if is_repeated(stop, wanted, done):
            return done, None
    return None, f"no savepoint was taken: the job is {outcome.status.value}"


def answer(promise: Promise[str], job: str, path: str | None, error: str | None) -> None:
    """What the job's driver said."""
    if path is not None:
        promise.keep(path)
    else:
        promise.fail(CheckpointError(f"job '{job}': {error}"))
