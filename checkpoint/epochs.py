"""Who may add to a job's checkpoints: one coordinator at a time, the one of the greatest epoch.

    <root>/<job id>/epoch-<n>       who began epoch n; made exclusively, never changed
    <root>/<job id>/epoch-<n>.end   the last of its checkpoints that counts; likewise

Every coordinator begins an epoch in its job's folder before it reads what is there, and publishes
nothing once there is a later one. Who starts from a checkpoint of another job begins an epoch in
*that* job's folder, too, and in those of all jobs that did so before it: whatever is restored
fences what it came from. A job has, seen from its folder,

    begun      ─ a later epoch ─▶   fenced: publishes nothing, commits nothing, removes nothing

and nothing leads back. What was loaded before is looked for again behind the beginning of an epoch.

**Who comes late.** A coordinator may be held up before it begins its epoch, until another of its
job has come, and begun. The coordinators of a job are numbered: behind the epoch of a greater one
none begins, and one that did all the same, as it had looked before, goes no further. Its epoch
fences nobody but itself: the greater one passes over it. Without numbers the later epoch is right.

**What is left behind.** Each coordinator leaves a file that fences the one before it, and one that
settles it. A job may have thousands in its life, so the one that takes over removes those of all
but the last `KEPT` epochs, once it has settled all before its own: who began them, the oldest
first, and what counts of those of which no checkpoint is there. Whoever is held up finds, however
late it looks, an epoch behind its own, or that its own is gone; either way it is fenced. What it
publishes then counts for nobody: of an epoch of which nothing is known any more, while there are
later ones, nothing does. A number is not given twice: who begins an epoch looks behind that whether
there are later ones, and goes on behind those, since the listing before it may have been old.
(Where no epoch is there at all, somebody has removed the folder: that fences nobody.) Of
checkpoints nothing is left here, however many there are.

**Why that is enough.** A publisher writes the manifest, which says its epoch, then looks whether
that is still the last, and only then says that the checkpoint is complete. A successor begins its
epoch, then settles of all epochs before which of their checkpoints count: those that are there
(`settling`). Then it looks for the newest manifest that counts.

    publisher   manifest n   is there a later epoch?   yes: settle "up to n"
    successor                begin it     settle "up to the newest that is there"     read

Of two that do so at once, either the publisher sees the epoch or the successor sees the manifest
(storages on which a read sees every finished write; that of a listing may be late, but the names of
epochs are known and asked for one by one). So no checkpoint is told to be complete, and none of its
output committed, that the successor does not start from, if it was to start from the newest.

A publisher that is fenced settles its own epoch. If it is the first to do so, its manifest counts
and stays: whoever settled nothing yet has not looked either, and will find it. If the successor was
first, and has seen it, it stays as well. If it has not, nobody reads it any more, and its publisher
removes it; where that is dead or held up, it counts for nobody all the same. So nothing is taken
back that somebody starts from, and nobody starts from what was published too late. Of more than two
each settles all epochs before its own, and what is settled is the same for all.

What remains:

* A publisher that has looked and is held up before it tells its tasks, by longer than it takes its
  successor to start. Its checkpoint is complete, and the successor starts from it; both commit the
  same output, which is idempotent.
* What a coordinator removes of its own it removes behind a look, too: a successor that begins
  between the two may read what is then removed. Of old checkpoints that is nothing, for there is a
  newer one that counts; but it may be the newest if the coordinator did not wait for its
  publication (`Disown`), could not look behind it, or is at the end of a job whose checkpoints do
  not outlive it. What was disowned may be read, too, when its coordinator has gone back to the one
  before, and its sinks have removed what they had prepared for it: who starts from it fails by
  name, and loses nothing that was committed.
* A publisher that was fenced and is held up between its look and the settling of its own epoch, by
  as many takeovers as are kept, and dies then before it has taken back what it published.
* A successor that was told to start from an older checkpoint by name has the sinks take back what
  came later, or is refused by them (`api.connectors.base.OutputClaim`).

When a job's checkpoints do not outlive it, who began the last epoch stays if there was more than
one, for a coordinator that is held up may look as late as ever (`is_needed`).

Prior art: leader epochs of Kafka's log and the fencing tokens of lock services. A lease was
rejected: it needs clocks that agree, and a coordinator that was stopped for an hour does not know.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..core.errors import FencedError
from ..core.ids import CheckpointId

PREFIX = "epoch-"

KEPT: Final = 32
"""So many epochs before the last one are known by files. A listing may be late by less than so many
coordinators take to start."""

_END = ".end"


@dataclass(frozen=True)
class Tenant:
    """Who began an epoch. `token`: nobody else's. `home`: where the job's own checkpoints are, as
    a root for `open_storage`; None: nowhere. `restored`: the checkpoint of this folder that it
    starts from, 0 if it is the folder's own job. `place`: host and process, for people. `number`:
    which of the job's coordinators it is, of however many runs; None: nobody counts them."""

    job_id: str
    job_name: str
    token: str
    home: str | None
    restored: int
    since_ms: int
    place: str
    number: int | None = None

    def named(self) -> str:
        return f"job '{self.job_name}' ({self.job_id}, {self.place})"

    def is_older(self, than: Tenant) -> bool:
        """Whether both coordinate one job and this one came first, whichever of their epochs is the
        later. False where that is not known."""
        if self.job_id != than.job_id or self.number is None or than.number is None:
            return False
        return self.number < than.number


def encode(tenant: Tenant) -> bytes:
    return json.dumps(asdict(tenant), sort_keys=True).encode()


def decode(data: bytes) -> Tenant | None:
    """None for what nobody wrote so, or has not finished writing."""
    try:
        found: Any = json.loads(data)
        return Tenant(
            str(found["job_id"]),
            str(found["job_name"]),
            str(found["token"]),
            None if found["home"] is None else str(found["home"]),
            int(found["restored"]),
            int(found["since_ms"]),
            str(found["place"]),
            None if found.get("number") is None else int(found["number"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def epoch_name(epoch: int) -> str:
    return f"{PREFIX}{epoch}"


def epoch_of(name: str) -> int | None:
    """The epoch that a file of this name begins; None for any other name."""
    number = name.removeprefix(PREFIX)
    plain = number != name and number.isascii() and number.isdigit() and number[0] != "0"
    return int(number) if plain else None


def end_name(epoch: int) -> str:
    """The file that says which checkpoints of an epoch count."""
    return f"{epoch_name(epoch)}{_END}"


def encode_end(last: CheckpointId) -> bytes:
    return json.dumps({"last": int(last)}).encode()


def decode_end(data: bytes) -> CheckpointId | None:
    """None for what nobody wrote so, or has not finished writing."""
    try:
        return CheckpointId(int(json.loads(data)["last"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def is_of_epochs(name: str) -> bool:
    """Whether a file of this name begins an epoch, or says which of its checkpoints count."""
    return epoch_of(name.removesuffix(_END)) is not None


def is_needed(name: str, names: Collection[str]) -> bool:
    """Whether a file of epochs is when all checkpoints are removed, and those are the files that
    are there. Whoever was fenced may be held up, and look as late as ever: it finds its own epoch
    gone, and a later one. Where there was one epoch, nobody was."""
    last = max((epoch_of(other) or 0 for other in names), default=0)
    return last > 1 and epoch_of(name) == last


def age_of(name: str) -> tuple[int, str]:
    """What sorts files of epochs in the order in which they may be removed: the older epochs first,
    and of each who began it before what counts of it. At no time is one known that is over while
    the one behind it is not, nor one of which it is not known what counts."""
    return epoch_of(name.removesuffix(_END)) or 0, name


def fenced(mine: Tenant, by: Tenant | None) -> FencedError:
    """What a coordinator says whose epoch is over."""
    who = "another coordinator, which left no name" if by is None else by.named()
    what = "began anew as the coordinator of this job"
    if by is not None and by.job_id != mine.job_id:
        what = f"started from its checkpoint {by.restored}, or a later one,"
        if by.restored == 0:
            what = "started from what this job had started from"
    return FencedError(
        f"{mine.named()} was fenced: {who} {what} and goes on with its work. Nothing of this one "
        "is published any more, and it removes nothing; let the other one run, or cancel that and "
        "start again from the newest checkpoint"
    )


def fences(mine: Tenant, there: Mapping[int, Tenant | None]) -> list[Tenant]:
    """Of those who began epochs in a folder from which `mine` starts: other jobs that started from
    it before, each once, which are fenced with the folder's own."""
    found = {t.job_id: t for _, t in sorted(there.items()) if t is not None and t.restored > 0}
    return [t for job_id, t in found.items() if job_id != mine.job_id and t.home is not None]
