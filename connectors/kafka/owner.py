"""Whose a transactional id prefix is: that of the last job that took it over.

    <prefix>-owner                   a transactional id that nobody writes with. Who takes over
                                     registers it anew, by which its epoch grows: writers that know
                                     an older epoch commit nothing more
    <prefix>-from-<origin>-<job>     likewise: that a job started from a checkpoint of another one

A coordinator that goes on with writers registers nothing where one of these shows the newest epoch:
they would be refused, and nobody else has taken over since.

Each commit asks for the owner's epoch first; a commit and a take-over in the same instant may both
come through. What was published before stays: Kafka takes nothing back. The cluster forgets ids
that nothing happened to for `transactional.id.expiration.ms`, 7 days; then a prefix is nobody's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from ...api.connectors.base import OutputClaim
from ...core.errors import ConfigurationError, ConnectorError, FencedError, RetryableCommitError
from .transactions import EMPTY, TransactionCluster

_TAG: Final = 12

Connect = Callable[[Callable[[], bool]], AbstractContextManager[TransactionCluster]]
"""A cluster, asked as long as the argument says so."""


def take(cluster: TransactionCluster, prefix: str, claim: OutputClaim) -> tuple[str, list[str]]:
    """What writers are told, and what is worth a warning."""
    owner = _kept(cluster, prefix, claim.shown)
    if owner is None:
        owner = "{}:{}".format(*cluster.fence(owner_id(prefix)))
    if claim.origin is None:
        return owner, []
    job_id, n = claim.origin
    begins = f"{prefix}-from-{_tag(f'{job_id}/{n}')}-"
    mine = begins + _tag(claim.job_id)
    before = {one for one in cluster.list([EMPTY]) if one.startswith(begins)} - {mine}
    cluster.fence(mine)
    if not before:
        return owner, []
    return owner, [
        f"another job has started from checkpoint {n} of job {job_id} before, with the same "
        f"transactional_id_prefix '{prefix}': what it committed stays in Kafka, and this job "
        "writes it once more. To go on with its work instead, start from its newest checkpoint"
    ]


def owner_id(prefix: str) -> str:
    return f"{prefix}-owner"


def _kept(cluster: TransactionCluster, prefix: str, shown: Collection[str]) -> str | None:
    """What writers were told that need not be refused; None: somebody else has taken over, or there
    are none."""
    last = _last(cluster, prefix) if shown else None
    if last is None:
        return min(shown, default=None)
    return last if last in shown else None


def _last(cluster: TransactionCluster, prefix: str) -> str | None:
    """What the last owner's writers were told; None: the prefix is nobody's."""
    one = owner_id(prefix)
    found = cluster.describe([one]).get(one)
    return None if found is None else f"{found.producer_id}:{found.epoch}"


class OwnerWatch:
    """A writer's look at whose the prefix is; from one thread at a time."""

    def __init__(self, connect: Connect, prefix: str, job_id: str, told: str) -> None:
        """`told`: what `take` gave."""
        self._connect = connect
        self._prefix = prefix
        self._job_id = job_id
        self._told = told
        self._held = ExitStack()
        self._cluster: TransactionCluster | None = None
        self._closed = False

    def check(self) -> None:
        """Ahead of a commit. FencedError if another has taken over; RetryableCommitError if the
        cluster does not say."""
        try:
            if self._cluster is None:
                self._cluster = self._held.enter_context(self._connect(lambda: not self._closed))
            last = _last(self._cluster, self._prefix)
        except ConfigurationError:
            raise
        except ConnectorError as error:
            self._drop()
            raise RetryableCommitError(f"nothing is committed now: {error}") from None
        self._refuse(last)

    def check_at(self, cluster: TransactionCluster) -> None:
        """The same by a connection of the caller's, from any thread; or ConnectorError."""
        self._refuse(_last(cluster, self._prefix))

    def _refuse(self, last: str | None) -> None:
        if last is not None and last != self._told:
            raise FencedError(
                f"nothing is committed any more by job {self._job_id}: another job, or another "
                f"coordinator of this one, has taken over transactional_id_prefix="
                f"'{self._prefix}' and goes on. If both are to run, give each its own prefix; if "
                "that is not wanted, cancel both and start one of them again from its newest "
                "checkpoint"
            )

    def stop(self) -> None:
        """From any thread: what is being asked is given up soon."""
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        held, self._held, self._cluster = self._held, ExitStack(), None
        held.close()


def _tag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_TAG]
