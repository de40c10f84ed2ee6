"""When a savepoint can be taken of a job, and why not."""

from __future__ import annotations

from ...checkpoint.savepoints import Savepoint
from .lifecycle import Lifecycle, Step
from .plan import JobPlan
from .running_attempt import RunningAttempt


def why_no_savepoint(
    savepoint: Savepoint, plan: JobPlan, life: Lifecycle, running: RunningAttempt | None
) -> str | None:
    """Why none can be taken in this state of the job; None: it can."""
    if life.step is not Step.RUNNING or running is None:
        return f"the job is {life.status.value}, and not running: ask again when it is"
    if running.restarts:
        return "a part of the job is being restarted: ask again when it runs"
    if running.progress.all_drained:
        return "the job is finishing"
    if savepoint.stop == "drain" and plan.caches:
        return (
            f"'{plan.caches[0]}' keeps a stream that would be taken for whole: stop the "
            "job without drain, or cancel it"
        )
    return None
