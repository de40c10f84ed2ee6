"""Who may add to a job's checkpoints: one coordinator at a time, the one of the greatest epoch.

    <root>/<job id>/epoch-<n>       who began epoch n; made exclusively, never changed

Every coordinator begins an epoch in its job's folder before it reads what is there, and publishes
nothing once there is a later one. Who starts from a checkpoint of another job begins an epoch in
*that* job's folder, too, and in those of all jobs that did so before it: whatever is restored
fences what it came from. A job has, seen from its folder,

    begun      ─ a later epoch ─▶   fenced: publishes nothing, commits nothing, removes nothing

and nothing leads back. What was loaded before is looked for again behind the beginning of an epoch.

**Why that is enough.** A publisher writes the manifest, then looks whether its epoch is still the
last, and only then says that the checkpoint is complete; a successor begins its epoch, then looks
for the newest manifest. Of two that do so at once, either the publisher sees the epoch or the
successor sees the manifest (storages on which a read sees every finished write; that of a listing
may be late, but the names of epochs are known and asked for one by one). So no checkpoint is told
to be complete, and none of its output committed, that the successor does not start from, if it was
to start from the newest. A manifest that loses is removed by its publisher.

A manifest that loses may be one that the successor has just read, and starts from: then that has no
checkpoint to go back to before it has one of its own, and a failure until then is not recovered
from in silence (`starting_point`).

What remains: a publisher that has looked and is held up before it tells its tasks, by longer than
it takes its successor to start. Its checkpoint is complete, and the successor starts from it; both
commit the same output, which is idempotent. A successor that was told to start from an older
checkpoint by name has the sinks take back what came later, or is refused by them
(`api.connectors.base.OutputClaim`).

Prior art: leader epochs of Kafka's log and the fencing tokens of lock services. A lease was
rejected: it needs clocks that agree, and a coordinator that was stopped for an hour does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..core.errors import FencedError

PREFIX = "epoch-"


@dataclass(frozen=True)
class Tenant:
    """Who began an epoch. `token`: nobody else's. `home`: where the job's own checkpoints are, as
    a root for `open_storage`; None: nowhere. `restored`: the checkpoint of this folder that it
    starts from, 0 if it is the folder's own job. `place`: host and process, for people."""

    job_id: str
    job_name: str
    token: str
    home: str | None
    restored: int
    since_ms: int
    place: str

    def named(self) -> str:
        return f"job '{self.job_name}' ({self.job_id}, {self.place})"


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
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def epoch_name(epoch: int) -> str:
    return f"{PREFIX}{epoch}"


def epoch_of(name: str) -> int | None:
    """The epoch that a file of this name begins; None for any other name."""
    number = name.removeprefix(PREFIX)
    plain = number != name and number.isascii() and number.isdigit() and number[0] != "0"
    return int(number) if plain else None


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
