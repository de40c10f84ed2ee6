"""Whose what a sink writes to is: one job's at a time, the last that took it over.

    nobody's ─ take ─▶ owned ─ release ─▶ free to all
                         └─ take ─▶ owned by another: what the former still commits is refused

A job may take what is nobody's, what a job has that is over, whose process is known to be dead, or
that is of its own *family*: its origin, and all that descend from that. Otherwise it is refused,
unless it is asked for by name. To find a process dead by mistake does no harm to the output: then
it is the former owner that is refused.

**Later output.** A job that continues checkpoint n of job A publishes again whatever its family
published behind that: A after n, and every job that started from A (or from what A started from)
and is no ancestor of this one. A's ancestors count up to the checkpoint at which they were left.

Pure. Who keeps the records, and tells which output is whose: of folders `files.owners`, of tables
`postgres.owners` and `spark.delta_owners`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..api.connectors.base import OutputClaim
from ..core.errors import OutputRefusedError

FINISHED = "FINISHED"


@dataclass(frozen=True)
class Owner:
    """A job that had it. `origin`, `origin_checkpoint`: what it continued; None: nothing.
    `epoch`, `origin_epoch`, `home`: as of `OutputClaim`. `ended`: how it ended, None: nobody knows
    of that."""

    job_id: str
    job_name: str
    token: str
    place: str
    origin: str | None
    origin_checkpoint: int
    epoch: int = 0
    origin_epoch: int = 0
    ended: str | None = None
    home: str | None = None

    def named(self) -> str:
        return f"job '{self.job_name}' ({self.job_id}, {self.place})"


def owner_of(claim: OutputClaim) -> Owner:
    origin, n = claim.origin or (None, 0)
    name, token, epochs = claim.job_name, claim.token, (claim.epoch, claim.origin_epoch)
    return Owner(claim.job_id, name, token, claim.place, origin, n, *epochs, home=claim.home)


def succeeded(history: Sequence[Owner], new: Owner) -> list[Owner]:
    """All jobs that had it, each once, in order of their first time. A job that goes on
    from a checkpoint of its own keeps its origin."""
    known = {owner.job_id: owner for owner in history}
    former = known.get(new.job_id)
    if former is not None and new.origin is None:
        new = replace(
            new,
            origin=former.origin,
            origin_checkpoint=former.origin_checkpoint,
            origin_epoch=former.origin_epoch,
        )
    return [*known.values(), new] if former is None else [*{**known, new.job_id: new}.values()]


def line_of(history: Sequence[Owner], job_id: str) -> dict[str, int]:
    """The ancestors of a job, and the checkpoints at which they were left."""
    known = {owner.job_id: owner for owner in history}
    line: dict[str, int] = {}
    owner = known.get(job_id)
    while owner is not None and owner.origin is not None and owner.origin not in line:
        line[owner.origin] = owner.origin_checkpoint
        owner = known.get(owner.origin)
    return line


def is_family(history: Sequence[Owner], job_id: str, other: str) -> bool:
    """Whether two jobs are the same, or have an ancestor in common; a job is its own."""
    mine, theirs = line_of(history, job_id), line_of(history, other)
    return bool(({job_id} | mine.keys()) & ({other} | theirs.keys()))


def is_fenced(history: Sequence[Owner], last: Owner | None, new: Owner) -> bool:
    """Whether it is `new` that was fenced, by who has it: of those who start at the same time the
    first to come here need not be the first to begin its epoch."""
    if last is None or last.token == new.token:
        return False
    if last.job_id == new.job_id:
        return new.epoch < last.epoch
    if new.job_id in line_of(history, last.job_id):
        return True
    mine = next(owner for owner in history if owner.job_id == new.job_id)
    return mine.origin == last.origin and 0 < mine.origin_epoch < last.origin_epoch


def why_not(
    history: Sequence[Owner], last: Owner | None, new: Owner, dead: bool, sink: str
) -> str | None:
    """Why `new` may not take what `last` has without being asked to by name. `history`: with `new`.
    `dead`: the process of `last` is known to be gone. `sink`: how its class is called."""
    if last is None or last.ended is not None or dead:
        return None
    if is_family(history, new.job_id, last.job_id):
        return None
    return (
        f"it belongs to {last.named()}, which is not known to be over, and {new.named()} does not "
        "continue its work. Cancel that job; or if it is gone, or is to be refused from now on, "
        f"give {sink}(..., take_over=True)"
    )


def taken(
    where: str, history: Sequence[Owner], claim: OutputClaim, asked: bool, dead: bool, sink: str
) -> list[Owner]:
    """All owners, the claim's last, if it may have it. `asked`: by name; the others as of
    `why_not`. OutputRefusedError."""
    new, last = owner_of(claim), history[-1] if history else None
    known = succeeded([owner for owner in history if owner.token != claim.token], new)
    if last is not None and is_fenced(known, last, new):
        raise OutputRefusedError(refused(where, new.named(), last))
    if not asked and (last is None or last.token != claim.token):
        why = why_not(known, last, new, dead, sink)
        if why is not None:
            raise OutputRefusedError(f"the sink must not write to '{where}': {why}")
    return known


def later(history: Sequence[Owner], job_id: str) -> dict[str, int]:
    """The jobs of which output is published that `job_id` publishes again, and the checkpoints
    behind which that is."""
    line = line_of(history, job_id)
    return {
        **line,
        **{
            owner.job_id: 0
            for owner in history
            if owner.job_id not in {job_id, *line}
            and line.keys() & line_of(history, owner.job_id).keys()
        },
    }


def twice(where: str, claim: OutputClaim, what: str, why: str, way: str) -> OutputRefusedError:
    """Of a claim with an origin that would publish again what is published already. `what`: that
    is, such as "3 files". `why`: it is not taken back. `way`: how it can be told to."""
    job_id, n = claim.origin or ("", 0)
    return OutputRefusedError(
        f"the sink must not write to '{where}': job '{claim.job_name}' ({claim.job_id}) starts "
        f"from checkpoint {n} of job {job_id}, and {what} of later output are published already, "
        f"{why}. Start from its newest checkpoint, write to another place, or give {way}"
    )


def is_earlier_run(last: Owner | None, claim: OutputClaim) -> bool:
    """Whether that was a run of the same job that did not finish, from which this one does not go
    on."""
    if last is None or claim.origin is not None or last.ended == FINISHED:
        return False
    return last.job_id != claim.job_id and last.job_name == claim.job_name


def begun_anew(where: str, by: Owner, what: str, to: int) -> str:
    """A warning: `by`, an earlier run of a job, has published there and did not finish, and the job
    does not go on from it. `what`: that it published, such as "3 files"; `to`: up to which
    checkpoint."""
    how = "is gone without a word" if by.ended is None else f"ended as {by.ended}"
    go_on = (
        "its checkpoints were in memory, and are lost with it"
        if by.home is None
        else "to go on with its work instead, start with its newest checkpoint, "
        f"restore_from='{by.home.rstrip('/')}/{by.job_id}'"
    )
    return (
        f"'{where}' has {what} of an earlier run of this job, {by.named()}, which {how} and has "
        f"published up to checkpoint {to}. This run begins anew, and adds its own to them: {go_on}"
    )


def refused(path: str, mine: str, by: Owner) -> str:
    """What a former owner is told whose commit is refused."""
    return (
        f"nothing is published in '{path}' any more by {mine}: {by.named()} has taken it over, "
        "and goes on with its work. If that is not wanted, cancel both and start one of them again "
        "from its newest checkpoint"
    )
