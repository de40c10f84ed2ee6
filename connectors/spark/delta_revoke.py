"""Taking back what a job added to a Delta table at checkpoints that are lost.

Each version of the log names the writers and the checkpoint that it is of, and all commits of a
checkpoint are ahead of all commits of a later one. So the log is read backwards, from its end to
the job's first version that may stay. One version then removes the files again, and marks their
writers as revoked: later commits of theirs come to nothing, and so does revoking once more.

Runs in the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...core.errors import ConnectorError
from .delta_table import action, actions_of, add_version, by_hand, committed, each, open_log

REVOKED: Final = 1 << 62
"""In place of a checkpoint's number."""


def revoke(spark: Any, path: str, job: str, after: int) -> int:
    """Remove the files that writers whose names begin with `job` added at checkpoints later than
    `after`; how many. Raises ConnectorError if some are not in the table any more: their rows may
    be in other files now."""
    log = open_log(spark, path)
    lost: list[str] = []

    def make(txn: Any) -> tuple[list[Any], Any] | None:
        writers = {one.appId(): one.version() for one in each(txn.snapshot().setTransactions())}
        mine = {app for app, last in writers.items() if app.startswith(job)}
        mine = {app for app in mine if after < writers[app] < REVOKED}
        if not mine:
            return None
        lost[:] = _added(log, txn.readVersion(), job, after)
        files = [
            one for one in txn.snapshot().allFiles().collectAsList() if one.path() in set(lost)
        ]
        if len(files) < len(lost):
            raise ConnectorError(
                f"the Delta table '{path}' was rewritten (OPTIMIZE, DELETE, UPDATE) since rows of "
                f"checkpoints later than {after} were added, which are to be taken back: "
                f"{len(lost) - len(files)} of {len(lost)} files are not in it any more. Restore "
                "the table by hand, and the job from that checkpoint"
            )
        marks = [action(spark, committed(app, REVOKED)) for app in sorted(mine)]
        return [*marks, *(one.remove() for one in files)], by_hand(spark)

    add_version(spark, log, make)
    return len(lost)


def _added(log: Any, last: int, job: str, after: int) -> list[str]:
    """The files that versions up to `last` added, of the job's later checkpoints."""
    found: list[str] = []
    for version in range(last, -1, -1):
        changes = log.getChanges(version, version, False)
        if not changes.hasNext():
            break  # the log begins behind it
        actions = actions_of(changes.next())
        checkpoint = _checkpoint(actions, job)
        if checkpoint is None or checkpoint == REVOKED:
            continue
        if checkpoint <= after:
            break
        found += [one["add"]["path"] for one in actions if "add" in one]
    return found


def _checkpoint(actions: list[Mapping[str, Any]], job: str) -> int | None:
    """The newest of the job's checkpoints that a version is of; None: of none."""
    txns = [one["txn"] for one in actions if "txn" in one]
    return max((t["version"] for t in txns if t["appId"].startswith(job)), default=None)
