"""Whose work in a Delta table is: several jobs may append to one table, but of those that continue
the same work only the last one does.

    txn strom-from/<job>/<origin>/<n>         a job started from checkpoint n of another one
    txn strom-owner/<root>/<operator>  k      of all that descend from the job `root`, and itself,
                                              the k-th has the work

Each commit reads the owner's number in the transaction that adds the files, so Delta refuses it
where somebody takes over at the same time. What was added behind the checkpoint that a job starts
from, by whoever, is taken back when it does (`delta_revoke`): its files are in older versions only.

A job that begins anew, for the first time, asks nothing: nobody else can have its work. A
coordinator that goes on with writers adds nothing where one of these shows the newest number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...api.connectors.base import OutputClaim
from ...core.errors import ConnectorError, FencedError, OutputRefusedError
from ..ownership import Owner, later, line_of
from .delta_revoke import revoke
from .delta_table import action, add_version, by_hand, committed, each, open_log

_FROM: Final = "strom-from/"
_OWNER: Final = "strom-owner/"


@dataclass(frozen=True)
class DeltaOwner:
    """What a writer shows: under which number of which application its job has the work."""

    app: str
    number: int

    @classmethod
    def of(cls, told: str) -> DeltaOwner | None:
        """None: whose it is was never asked."""
        app, _, number = told.rpartition("|")
        return cls(app, int(number)) if app else None

    def __str__(self) -> str:
        return f"{self.app}|{self.number}"

    def check(self, txn: Any, path: str) -> None:
        """Within the transaction that commits. FencedError if another has the work."""
        found = max(0, int(txn.txnVersion(self.app)))
        if found != self.number:
            raise FencedError(
                f"nothing is added to the Delta table '{path}' any more: another job that started "
                "from a checkpoint of this one, or of what it started from, or another coordinator "
                "of this one has taken over, and goes on with its work. If that is not wanted, "
                "cancel both and start one of them again from its newest checkpoint"
            )


def first_of(claim: OutputClaim) -> DeltaOwner | None:
    """What can be said without asking the table; None: it has to be asked."""
    if claim.origin is not None or claim.epoch > 1:
        return None
    return DeltaOwner(_owner(claim.job_id, claim.operator_id), 0)


def take(spark: Any, path: str, claim: OutputClaim) -> tuple[str, list[str]]:
    """A `DeltaOwner` as text, and what is worth a warning. OutputRefusedError if what was published
    later cannot be taken back."""
    log = open_log(spark, path)
    owner = DeltaOwner(_owner(claim.job_id, claim.operator_id), 0)
    history: list[Owner] = []

    def make(txn: Any) -> tuple[list[Any], Any] | None:
        nonlocal owner
        if txn.readVersion() < 0:
            return None  # there is no table, and nothing to take over
        apps = {one.appId(): one.version() for one in each(txn.snapshot().setTransactions())}
        history[:] = known(apps, claim)
        root = [claim.job_id, *line_of(history, claim.job_id)][-1]
        app = _owner(root, claim.operator_id)
        owner = DeltaOwner(app, max(0, int(txn.txnVersion(app))))
        if str(owner) in claim.shown:
            return None
        owner = replace(owner, number=owner.number + 1)
        lines = [committed(owner.app, owner.number)]
        if claim.origin is not None:
            lines.append(committed(_line(claim.job_id, *claim.origin), 1))
        return [action(spark, line) for line in lines], by_hand(spark)

    add_version(spark, log, make)
    return str(owner), list(_taken_back(spark, path, claim, history))


def known(apps: Iterable[str], claim: OutputClaim) -> list[Owner]:
    """The jobs that a table knows the origins of, and the claim's.

    >>> claim = OutputClaim("b", "job", "out", "op", "token", "here", ("a", 7))
    >>> found = known(["strom-from/a/o/3", "strom/a/op/0/f00"], claim)
    >>> [(one.job_id, one.origin, one.origin_checkpoint) for one in found]
    [('a', 'o', 3), ('b', 'a', 7)]
    """
    found = {}
    for app in apps:
        if app.startswith(_FROM):
            job_id, origin, n = app.removeprefix(_FROM).split("/")
            found[job_id] = Owner(job_id, "", "", "", origin, int(n))
    if claim.origin is not None:
        found[claim.job_id] = Owner(claim.job_id, "", "", "", *claim.origin)
    return list(found.values())


def _taken_back(
    spark: Any, path: str, claim: OutputClaim, history: Sequence[Owner]
) -> Iterable[str]:
    if claim.origin is None:
        return
    behind: Mapping[str, int] = later(history, claim.job_id)
    for job_id, after in behind.items():
        try:
            files = revoke(spark, path, f"strom/{job_id}/{claim.operator_id}/", after)
        except ConnectorError as error:
            raise OutputRefusedError(
                f"job '{claim.job_name}' ({claim.job_id}) starts from checkpoint "
                f"{claim.origin[1]} of job {claim.origin[0]}, and what was published behind that "
                f"would be there twice: {error}"
            ) from None
        if files:
            yield (
                f"removed {files} files from the Delta table '{path}' that job {job_id} added "
                f"behind the checkpoint from which job {claim.job_id} continues"
            )


def _owner(root: str, operator_id: str) -> str:
    return f"{_OWNER}{root}/{operator_id}"


def _line(job_id: str, origin: str, n: int) -> str:
    return f"{_FROM}{job_id}/{origin}/{n}"
