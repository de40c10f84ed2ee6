"""What is said of a commit that cannot be done: what was published, what was not, what to do."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import OperatorError, StromError
from ...core.failure_text import described, traced, users_place, with_place
from .commit_tries import Verdict, is_fenced, verdict


@dataclass(frozen=True)
class CommitState:
    """How far a sink's subtask has come.

    checkpoint_id: of which the commit failed; None: of what the restored one holds. count: its
    committables. part: how many of them are published, from the first on; None: not known.
    published_to, published: the last checkpoint that this writer has committed (0: none), and how
    many committables. waiting: checkpoints behind it that were prepared. complete: the last
    checkpoint that is. stored: whether checkpoints outlive the job. tries, lasted_ms: of the one
    that failed.
    """

    checkpoint_id: int | None
    count: int
    part: int | None
    published_to: int
    published: int
    waiting: tuple[int, ...]
    complete: int
    stored: bool
    tries: int
    lasted_ms: int


def commit_failed(
    operator: str, subtask: int, error: Exception, state: CommitState
) -> OperatorError:
    """Recoverable, so that the restart strategy has the next word, only if nobody can say whether
    another attempt helps."""
    found = verdict(error)
    what = _name(state.checkpoint_id)
    tries = f" {state.tries} times in {state.lasted_ms / 1000:.1f} s" if state.tries > 1 else ""
    own = isinstance(error, StromError)
    why = described(error) + users_place(error) if own else with_place(error)
    said = (
        f"the commit of {what} failed{tries}: {why}. "
        f"Published: {_published(state, what)}. Not published: {_missing(state, what)}. "
        f"{_advice(state, found)}"
    )
    made = OperatorError(operator, subtask, said, "" if own else traced(error))
    made.recoverable, made.fenced = found is Verdict.UNKNOWN, is_fenced(error)
    return made


def _name(checkpoint_id: int | None) -> str:
    return "the restored checkpoint" if checkpoint_id is None else f"checkpoint {checkpoint_id}"


def _published(state: CommitState, what: str) -> str:
    parts = []
    if state.published_to:
        parts.append(
            f"all up to checkpoint {state.published_to} ({_count(state.published)} since this "
            "attempt began)"
        )
    if state.part:
        parts.append(f"{state.part} of {_count(state.count)} of {what}")
    elif state.part is None and state.count:
        parts.append(f"perhaps some of {_count(state.count)} of {what}, the sink does not say")
    return " and ".join(parts) or "nothing in this attempt"


def _missing(state: CommitState, what: str) -> str:
    if state.part is None:
        first = f"the others of {what}"
    else:
        first = f"{state.count - state.part} of {_count(state.count)} of {what}"
    if not state.waiting:
        return first
    ids = ", ".join(map(str, state.waiting[:10])) + (", ..." if len(state.waiting) > 10 else "")
    return f"{first}, and what was prepared since (checkpoints {ids})"


def _advice(state: CommitState, found: Verdict) -> str:
    if found is Verdict.UNKNOWN:
        return (
            "Where the job restarts, it commits again what is not published; a writer that raises "
            "RetryableCommitError or CommitError decides that itself"
        )
    more = "" if found is Verdict.FINAL else " (or raise sink.committer.retries)"
    where = "that it was started from" if not state.complete else f"{state.complete}"
    if state.stored:
        return (
            f"Mend the cause{more}, and start the job again from checkpoint {where}: it publishes "
            "what is missing first, and nothing twice"
        )
    return (
        f"Mend the cause{more}. Checkpoints of this job are in memory, and lost with it: with "
        "execution.checkpointing.dir it could go on from its last one"
    )


def _count(number: int) -> str:
    return f"{number} committable{'' if number == 1 else 's'}"
