"""Writers of `KafkaSink`: at least once by flushing, exactly once by a transaction a checkpoint.

A write is work in steps: while the client's queue is full, or the transaction before is not yet
flushed, or the next producer not yet there, the task hears its mail in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ...api.connectors.base import PreparedCommit, SinkWriter
from ...core.batch import Batch
from ...core.errors import ConnectorError, FencedError
from .errand import Errand
from .librdkafka import Failure
from .owner import OwnerWatch
from .producer import FULL_WAIT_S, Producer, TransactionalProducer
from .record_maker import RecordFormat, make_records
from .transactions import (
    TransactionCluster,
    TransactionCommittable,
    TransactionNames,
    commit,
    left_over,
)

log = logging.getLogger("strom")

FLUSH_STEP_S: Final = 0.1

COMMIT_S: Final = 30.0
"""How long a transaction's own producer may take to commit it. Then, with a warning, it is
committed by what a committable says of it, as after a restore."""

ABORT_S: Final = 1.0

CLOSE_S: Final = 5.0
"""How long a closing task waits for its clients' threads."""

DRAIN_S: Final = 10.0
"""How long a writer without a guarantee waits, when it is closed, for what is still queued."""

LISTEN_MS: Final = 1000
"""How often clients are heard while nothing is written: what they say stays in memory until then,
5 KB of statistics each 200 ms of a transactional one."""


class Flushing:
    """What was written before a barrier becomes acknowledged, whoever waits for it: the snapshot's
    thread, or the task's before it writes more."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._lock = threading.Lock()
        self._done = False

    def step(self, seconds: float) -> bool:
        """Whether all is acknowledged, waiting this long. Raises ConnectorError."""
        if self._done:
            return True
        if not self._lock.acquire(timeout=seconds):
            return False
        try:
            self._done = self._done or self._producer.flush(seconds)
            return self._done
        finally:
            self._lock.release()

    def finish(self) -> None:
        """Wait for all; `delivery.timeout.ms` ends it."""
        while not self.step(FLUSH_STEP_S):
            pass


class FlushingWriter(SinkWriter):
    """At least once: one producer, idempotent, flushed at each barrier. Without `flushes` (no
    guarantee) nothing is waited for but the end."""

    tends_every_ms = LISTEN_MS

    def __init__(self, form: RecordFormat, producer: Producer, flushes: bool) -> None:
        self._format = form
        self._producer = producer
        self._flushes = flushes
        self._flushing: Flushing | None = None
        """Of the last barrier. Records behind it wait, so that it ends."""

    def write(self, batch: Batch) -> Iterator[None] | None:
        return self._steps(batch) if len(batch) else None

    def tend(self) -> None:
        self._producer.listen()
        self._producer.check()

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        self.tend()
        if not self._flushes:
            return []
        flushing = self._flushing = Flushing(self._producer)

        def flush() -> Sequence[Any]:
            flushing.finish()
            return []

        return flush

    def commit(self, committables: Sequence[Any]) -> None:
        """There are none."""

    def close(self) -> None:
        try:
            if not self._flushes and not self._producer.flush(DRAIN_S):
                log.warning(
                    "up to %d records are not acknowledged by Kafka %.0f s after the last one, and "
                    "may be lost: delivery is 'none'",
                    self._producer.unheard(),
                    DRAIN_S,
                )
        finally:
            self._producer.close()

    def _steps(self, batch: Batch) -> Iterator[None]:
        records = make_records(self._format, batch)
        while self._flushing is not None and not self._flushing.step(FULL_WAIT_S):
            yield
        self._flushing = None
        yield from self._producer.write(records)


@dataclass(frozen=True)
class Making:
    """What a transactional writer is made with; tests give another cluster."""

    producer: Callable[[str], TransactionalProducer]
    """A producer for a transactional id; to be opened."""
    cluster: Callable[[Callable[[], bool]], AbstractContextManager[TransactionCluster]]
    """Asks about transactions while its argument says so."""
    errand: Callable[[Callable[[], Any], str], Any] = Errand


class TransactionalWriter(SinkWriter):
    """Exactly once; see `transactions`.

    timeout_ms: of a transaction. skip_lost: go on when records of a completed checkpoint are lost.
    """

    tends_every_ms = LISTEN_MS

    def __init__(
        self,
        form: RecordFormat,
        names: TransactionNames,
        making: Making,
        timeout_ms: int,
        skip_lost: bool = False,
        owner: OwnerWatch | None = None,
    ) -> None:
        """`owner`: is asked ahead of each commit; None: nobody is."""
        self._owner = owner
        self._format = form
        self._names = names
        self._making = making
        self._timeout_ms = timeout_ms
        self._skip_lost = skip_lost
        self._closed = False
        self._spare = self._make_ahead()
        """Makes the producer of the next transaction."""
        self._current: TransactionalProducer | None = None
        """Has a transaction with records behind the last barrier."""
        self._flushing: Flushing | None = None
        """Of the last transaction before the last barrier."""
        self._prepared: dict[str, TransactionalProducer] = {}
        """Those whose transactions wait for their checkpoints, by transactional id."""
        self._sweep_due: bool | None = None
        """Whether leftovers are to be ended behind the next completed checkpoint; None: nothing was
        restored, and they can be ended now."""
        self._errands: list[Any] = []
        """Closing and sweeping, perhaps done."""

    def write(self, batch: Batch) -> Iterator[None] | None:
        return self._steps(batch) if len(batch) else None

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        self._begin()
        self._refuse_old_ones()
        self._listen()
        producer, self._current = self._current, None
        if producer is None:
            return []
        flushing = self._flushing = Flushing(producer)
        self._prepared[producer.transactional_id] = producer

        def flush() -> Sequence[TransactionCommittable]:
            flushing.finish()
            name, records = producer.transactional_id, producer.records
            return [TransactionCommittable(name, *producer.identify(), records)]

        return flush

    def tend(self) -> None:
        self._listen()
        if self._current is not None:
            self._current.listen()
            self._current.check()

    def commit(self, committables: Sequence[TransactionCommittable]) -> Iterator[None] | None:
        return self._owned(partial(self._commit, committables), committables)

    def recover(self, committables: Sequence[TransactionCommittable]) -> Iterator[None] | None:
        return self._owned(partial(self._recover, committables), committables)

    def _owned(self, work: Callable[[], None], committables: Any) -> Iterator[None] | None:
        """Once it is known that the prefix is still the job's."""
        if self._owner is None or not committables:
            work()
            return None
        return self._behind(self._making.errand(self._owner.check, "owner"), work)

    def _behind(self, check: Any, work: Callable[[], None]) -> Iterator[None]:
        self._errands.append(check)
        while not check.wait(FULL_WAIT_S):
            yield
        self._errands.remove(check)
        check.result()
        work()

    def _commit(self, committables: Sequence[TransactionCommittable]) -> None:
        others = [one for one in committables if not self._commit_own(one)]
        self._commit_others(others)
        if self._sweep_due:
            self._sweep()

    def _recover(self, committables: Sequence[TransactionCommittable]) -> None:
        self._commit_others(committables)
        self._sweep_due = True
        if self._names.parallelism == 1:
            self._sweep()

    def close(self) -> None:
        """Abort what no checkpoint has; what is prepared stays as it is, to be committed by the
        next attempt if its checkpoint completed."""
        self._closed = True
        if self._current is not None:
            self._do(self._abandon, self._current)
        for producer in self._prepared.values():
            self._retire(producer)
        self._current, self._prepared = None, {}
        self._do(self._close_spare)
        deadline = time.monotonic() + CLOSE_S
        if self._owner is not None:
            self._owner.stop()
        for errand in self._errands:
            errand.wait(max(0.0, deadline - time.monotonic()))
        if self._owner is not None:
            self._owner.close()

    def _steps(self, batch: Batch) -> Iterator[None]:
        records = make_records(self._format, batch)
        if not len(records):
            return
        self._begin()
        self._listen()
        while self._flushing is not None and not self._flushing.step(FULL_WAIT_S):
            yield
        self._flushing = None
        if self._current is None:
            while not self._spare.wait(FULL_WAIT_S):
                yield
            producer = self._spare.result()
            producer.begin()
            self._current, self._spare = producer, self._make_ahead()
        yield from self._current.write(records)

    def _begin(self) -> None:
        """Before the first record, or barrier, of an attempt in which nothing was restored."""
        if self._sweep_due is None:
            self._sweep()

    def _listen(self) -> None:
        """To those that nothing is written to."""
        for one in self._prepared.values():
            one.listen()
        if self._spare.wait(0):
            self._spare.result().listen()

    def _refuse_old_ones(self) -> None:
        """While a transaction that timed out belongs to no completed checkpoint, nothing is lost:
        the job goes back, and writes its records again."""
        for one in self._prepared.values():
            if one.age_s * 1000 >= self._timeout_ms:
                raise ConnectorError(
                    f"Kafka transaction '{one.transactional_id}' has waited {one.age_s:.0f} s for "
                    "its checkpoint to complete, longer than transaction.timeout.ms="
                    f"{self._timeout_ms}, so the cluster has dropped it: look why checkpoints take "
                    "so long, or set it to more"
                )

    def _make_ahead(self) -> Any:
        def make() -> TransactionalProducer:
            producer = self._making.producer(self._names.next())
            try:
                producer.open(lambda: not self._closed)
            except BaseException:
                producer.close()
                raise
            return producer

        return self._making.errand(make, "spare")

    def _commit_own(self, committable: TransactionCommittable) -> bool:
        """By the producer that wrote it; False: there is none, or it could not."""
        producer = self._prepared.pop(committable.transactional_id, None)
        if producer is None:
            return False
        try:
            producer.commit(COMMIT_S)
        except Failure as failure:
            log.warning(
                "Kafka transaction '%s' was not committed by its own producer: %s",
                committable.transactional_id,
                failure,
            )
            return False
        finally:
            self._retire(producer)
        return True

    def _commit_others(self, committables: Sequence[TransactionCommittable]) -> None:
        if not committables:
            return
        with self._making.cluster(lambda: not self._closed) as cluster:
            for one in committables:
                lost = commit(cluster, one, self._timeout_ms)
                if lost is None:
                    continue
                if not self._skip_lost:
                    raise ConnectorError(lost)
                log.error("%s. Going on without them, as on_lost_transaction='skip' says", lost)

    def _sweep(self) -> None:
        """End what dead attempts left open, beside the stream. What is found before the prefix is
        known to be the job's still was begun before anybody else took it over."""
        self._sweep_due = False

        def sweep() -> None:
            try:
                with self._making.cluster(lambda: not self._closed) as cluster:
                    found = list(left_over(cluster, self._names))
                    if self._owner is not None:
                        self._owner.check_at(cluster)
                    for one in found:
                        cluster.fence(one)
                        log.info("Kafka transaction '%s' of a dead attempt was ended", one)
            except FencedError as fenced:
                log.warning("Kafka transactions that are open are left to their owner: %s", fenced)
            except Exception as error:
                if not self._closed:
                    log.warning(
                        "Kafka transactions that dead attempts left open could not be ended (%s): "
                        "until their time-out, %d s, they hold up read-committed readers",
                        error,
                        self._timeout_ms // 1000,
                    )

        self._errands.append(self._making.errand(sweep, "sweep"))

    def _do(self, function: Callable[..., None], *arguments: Any) -> None:
        self._errands = [one for one in self._errands if not one.wait(0)]
        self._errands.append(self._making.errand(lambda: function(*arguments), "close"))

    def _retire(self, producer: TransactionalProducer) -> None:
        self._do(producer.close)

    def _abandon(self, producer: TransactionalProducer) -> None:
        producer.abort(ABORT_S)
        producer.close()

    def _close_spare(self) -> None:
        self._spare.wait(CLOSE_S)
        try:
            self._spare.result().close()
        except Exception as error:
            log.debug("the next Kafka producer was not made: %s", error)
