"""What is said when user code raises while it is closed.

It fails no job. Functions are closed when the records of their task are committed, or when the task
has failed or been cancelled already. In the first case the results are complete and published
exactly once: a job that failed now would tell its user to run it again, which would publish them
twice, and another attempt would start behind the last record and find nothing to do. So whoever has
something left to write does it where it still counts: in a sink, in `prepare_commit` and `commit`.
What `close` could not do is said here. (Flink fails the task, and as its next attempt has nothing
left to do, the job then finishes as if nothing had been.)
"""

from __future__ import annotations

import logging

from ..core.failure_text import is_for_the_program, traced, with_place

_log = logging.getLogger(__name__)


def warn_of_close(operator: str, subtask: int, what: str, error: BaseException) -> None:
    """Log what closing `what` of the operator raised; raise it on if it is somebody's Ctrl-C."""
    if is_for_the_program(error):
        raise error
    _log.warning(
        "operator '%s', subtask %s: closing %s failed: %s; the job's results are not affected, but "
        "what close() was to do is not done\n%s",
        operator,
        subtask,
        what,
        with_place(error),
        traced(error),
    )
