"""Exactly once by Kafka's transactions: whose they are, what became of them, who ends them.

    first record behind barrier n-1   a transaction begins
    barrier n    what was written is flushed, beside the stream; (transactional id, producer id,
                 epoch) is the committable, part of checkpoint n; the next record begins another
    n complete   the transaction is committed, by its own producer while that lives
    restore      committed again with what the committable says: once committed is committed

A transaction for each checkpoint in which a subtask had records, each under an id of its own that
is never used again:

    <prefix>-<subtask>-<job>.<attempt>.<writer>.<n>

So what became of a transaction can always be told from its id, for as long as the cluster remembers
(`transactional.id.expiration.ms`, 7 days). Were ids used again, "committed" and "never seen" would
look the same. `job` is a hash of job and operator id, `writer` is random: also a job that starts
anew, or a task that is thought dead and is not, never meets a name it does not own. Registering an
id takes a round trip or two, so the next producer is always made ahead, in the background.

The order of records. The next transaction's records are handed over only when all of the one before
are acknowledged: two producers at once would mix their records within a partition.

Leftovers. A dead attempt leaves transactions open, and registered ids with which a task that is not
dead after all could begin one; both would hold up read-committed readers until the time-out. They
are fenced (`InitProducerId`, which aborts). But a restored checkpoint's committables are dealt out
to all subtasks, and nobody knows whether another one still has to commit what it sees open. Once a
checkpoint of the new attempt has completed, every subtask has recovered; what then is open under an
older attempt, or another job with the prefix, belongs to nobody, unless another job has taken the
prefix over meanwhile: what is open then is its own. Subtask i of p looks after the former subtasks
i, i + p, i + 2p, ...; a single one need not wait, nor a job that starts without a checkpoint. Until
then nothing is lost to readers of this job: its new records are not committed before that
checkpoint either.

A transaction that the cluster aborts (its time-out ran out before the job came back) takes its
records along. Nothing can bring them back but an older checkpoint, so this is an error that says
so, and never passed over unless `on_lost_transaction="skip"`.

The rest of this file decides; it knows no thread and no socket.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol
from uuid import uuid4

from ...core.errors import RetryableCommitError

EMPTY: Final = "Empty"
ONGOING: Final = "Ongoing"
PREPARE_COMMIT: Final = "PrepareCommit"
COMPLETE_COMMIT: Final = "CompleteCommit"

OPEN_STATES: Final = (ONGOING, EMPTY)
"""Of ids that may have to be fenced."""

_TAG = 8


@dataclass(frozen=True, slots=True)
class TransactionCommittable:
    """A transaction with everything acknowledged, and what it takes to commit it."""

    transactional_id: str
    producer_id: int
    epoch: int
    records: int


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id as its coordinator sees it. `state`: Kafka's name of it."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int


class Fate(Enum):
    """What became of a committable's transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    FORGOTTEN = "forgotten"


def fate(committable: TransactionCommittable, found: Described | None) -> Fate:
    """`found`: its id as the cluster describes it; None: it knows no such id.

    The id has had one transaction, so if that was committed, the id's last one was."""
    if found is None:
        return Fate.FORGOTTEN
    if found.state in (PREPARE_COMMIT, COMPLETE_COMMIT):
        return Fate.COMMITTED
    same = (found.producer_id, found.epoch) == (committable.producer_id, committable.epoch)
    return Fate.OPEN if same and found.state == ONGOING else Fate.ABORTED


def lost(committable: TransactionCommittable, what: Fate, timeout_ms: int) -> str:
    """One sentence about records that are gone."""
    why = {
        Fate.ABORTED: "the cluster has aborted it, because it was open for longer than "
        f"transaction.timeout.ms={timeout_ms}, or because another job or sink with the same "
        "transactional_id_prefix took over",
        Fate.FORGOTTEN: "the cluster does not know it any more (transactional.id.expiration.ms), "
        "so whether it was committed cannot be told",
    }[what]
    return (
        f"Kafka transaction '{committable.transactional_id}' with {committable.records} records "
        f"of a completed checkpoint cannot be committed: {why}. These records are lost unless the "
        "job is restored from the checkpoint before (which writes again what other subtasks "
        "committed since); to go on without them set on_lost_transaction='skip', and give "
        "transaction.timeout.ms more than an outage takes"
    )


@dataclass
class TransactionNames:
    """The transactional ids of one subtask in one attempt, and which others are whose."""

    prefix: str
    job_id: str
    operator_id: str
    subtask: int
    parallelism: int
    attempt: int
    writer: str = field(default_factory=lambda: uuid4().hex[:_TAG])
    _used: int = 0

    def __post_init__(self) -> None:
        identity = f"{self.job_id}/{self.operator_id}"
        self._job = hashlib.sha256(identity.encode()).hexdigest()[:_TAG]
        self._pattern = re.compile(
            re.escape(self.prefix) + r"-(\d+)-([0-9a-f]+)\.(\d+)\.([0-9a-f]+)\.\d+"
        )

    def next(self) -> str:
        """An id that nobody ever had."""
        self._used += 1
        return f"{self.prefix}-{self.subtask}-{self._job}.{self.attempt}.{self.writer}.{self._used}"

    def is_left_over(self, transactional_id: str) -> bool:
        """Whether an id is of a dead attempt, or of another job, and of a former subtask that this
        one looks after."""
        found = self._pattern.fullmatch(transactional_id)
        if found is None or int(found[1]) % self.parallelism != self.subtask:
            return False
        return found[2] != self._job or int(found[3]) < self.attempt


class TransactionCluster(Protocol):
    """What a cluster is asked about transactions of others. All calls wait, and retry what passes;
    ConnectorError for what does not."""

    def end(self, committable: TransactionCommittable) -> str | None:
        """Commit. None if it is done, else why it was refused."""
        ...

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, Described]:
        """Those that the cluster knows."""
        ...

    def list(self, states: Iterable[str]) -> Iterable[str]:
        """Ids in one of the states."""
        ...

    def fence(self, transactional_id: str) -> tuple[int, int]:
        """Abort what is open under the id; who had it can do nothing any more. Its producer id and
        epoch from now on."""
        ...


def commit(
    cluster: TransactionCluster, committable: TransactionCommittable, timeout_ms: int
) -> str | None:
    """Idempotent. None if the transaction is committed, by this call or before; a sentence if its
    records are lost. RetryableCommitError if neither is known."""
    refused = cluster.end(committable)
    if refused is None:
        return None
    found = cluster.describe([committable.transactional_id])
    what = fate(committable, found.get(committable.transactional_id))
    if what is Fate.COMMITTED:
        return None
    if what is Fate.OPEN:
        raise RetryableCommitError(
            f"Kafka transaction '{committable.transactional_id}' cannot be committed now: {refused}"
        )
    return lost(committable, what, timeout_ms)


def left_over(cluster: TransactionCluster, names: TransactionNames) -> Iterator[str]:
    """Ids to fence, by a subtask that may (see the module). An id that is registered and unused is
    fenced once: the epoch of one that was is not 0 any more."""
    found = [one for one in cluster.list(OPEN_STATES) if names.is_left_over(one)]
    described = cluster.describe(found)
    for one in found:
        state = described.get(one)
        if state is not None and (state.state == ONGOING or state.epoch == 0):
            yield one
