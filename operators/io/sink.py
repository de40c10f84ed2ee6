"""The end of a stream: two-phase commit of a sink writer, driven by checkpoints.

    barrier n    prepare_commit(n) -> committables, part of checkpoint n
    n complete   commit everything prepared at checkpoints <= n, in order; forget it
    n aborted    nothing: what was prepared for n is committed with the next completed checkpoint
    restore      recover(committables of the restored checkpoint), before the first record; if that
                 is not the last one committed, revoke(checkpoint) first
    commit fails by what may pass (`commit_tries`): again after a pause, in which records are
                 written and snapshots taken as ever; later checkpoints wait behind it, and the end
                 of the task does. Once `uncommitted` of them wait, records do, too. A recover that
                 fails so holds up all
    it cannot be done: OperatorError, which says what was published and what was not

Several checkpoints may be prepared before one completes. What a writer prepares beside the task's
thread (a callable) is run once, by the asynchronous part of the first snapshot that holds it; all
later readers share that result, or that error. After the end of the input nothing is published
until the terminal checkpoint completes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from ...api.connectors.base import PreparedCommit, SinkWriter, WriterContext
from ...api.specs.records import SinkSpec
from ...core.batch import Batch
from ...core.errors import OperatorError, StromError
from ...core.failure_text import described, with_place
from ...state.descriptors import ListStateDescriptor
from ..base import HELD, Operator, Steps, Work
from ..closing import warn_of_close
from .commit_failure import CommitState, commit_failed
from .commit_tries import CommitTries

_log = logging.getLogger("strom")

COMMITTABLES = ListStateDescriptor("committables")
"""Items: (checkpoint id, committable), in order of checkpoints."""


class Prepared:
    """What was prepared for one checkpoint: known, or made on first use, once, on any thread.

    Invariant: `_result` and `_failure` are not both set, and neither changes once set.
    """

    def __init__(
        self, checkpoint_id: int, prepared: PreparedCommit, where: tuple[str, int]
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._where = where
        self._lock = threading.Lock()
        self._make = prepared if callable(prepared) else None
        self._result: tuple[Any, ...] | None = None if callable(prepared) else tuple(prepared)
        self._failure: OperatorError | None = None

    @property
    def known(self) -> bool:
        return self._result is not None

    def committables(self) -> Sequence[Any]:
        """The committables; waits while another thread makes them. Raises OperatorError if making
        them failed, at every call: a second try could publish half of the work twice."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._result is None:
                assert self._make is not None
                checkpoint = self.checkpoint_id
                try:
                    self._result = tuple(self._make())
                except BaseException as error:
                    self._failure = OperatorError(
                        *self._where,
                        f"preparing the commit of checkpoint {checkpoint} failed: "
                        f"{with_place(error)}",
                    )
                    if isinstance(error, StromError):
                        self._failure.recoverable = error.recoverable
                        self._failure.fenced = error.fenced
                    raise self._failure from error
                finally:
                    self._make = None
            return self._result

    def items(self) -> list[tuple[int, Any]]:
        """As elements of the state COMMITTABLES."""
        return [(self.checkpoint_id, committable) for committable in self.committables()]


def _begun(work: Steps) -> Work:
    """Take its first step; what is left."""
    for _ in work:
        return work
    return None


class SinkOperator(Operator):
    """Runs one writer of `spec.sink` in one subtask."""

    _writer: SinkWriter

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self.only_reads = spec.sink.only_reads
        self._pending: list[Prepared] = []
        """Prepared and not committed, by ascending checkpoint."""
        self._tend_at = 0
        """When the writer is tended next (ms), if it is at all."""
        self._opened = False
        self._complete = 0
        """The last checkpoint that is complete."""
        self._committing = False
        """Whether a commit has begun and not ended."""
        self._retry_at: int | None = None
        """When the commit that failed is tried again (ms); None: none waits for that."""
        self._published = 0
        """Committables that this writer has published, but for restored ones."""
        self._published_to = 0
        """The last checkpoint that was committed by this writer; 0: none."""

    def open(self) -> Work:
        ctx = self.ctx
        interval = ctx.config.checkpoint.interval
        self._state = ctx.operator_state.get_list_state(COMMITTABLES)
        self._writer = self._spec.sink.create_writer(
            WriterContext(
                operator=ctx.name,
                operator_id=ctx.operator_id,
                job_id=ctx.job_id,
                subtask=ctx.subtask,
                parallelism=ctx.parallelism,
                attempt=ctx.attempt,
                clock=ctx.clock,
                publish=ctx.publish,
                checkpointing=interval is not None,
                checkpoint_every_s=None if interval is None else interval.total_seconds(),
                token=ctx.token,
            )
        )
        self._opened = True
        who = f"{ctx.operator_id}/{ctx.subtask}/{ctx.attempt}"
        self._tries = CommitTries(ctx.config.commit, who)
        work: Work = None
        if ctx.restored or ctx.attempt > 0:
            if ctx.revoke_after is not None:
                self._writer.revoke(ctx.revoke_after)
            restored = sorted(self._state.get(), key=lambda item: item[0])
            work = _begun(self._recover(restored))
        self._state.clear()
        self._tend_later(ctx.clock.now_ms())
        ctx.metrics.gauge("heldUpByCommit", 0)
        return work

    def process(self, batch: Batch, port: int = 0) -> Work:
        if self._retry_at is not None and self._uncommitted() >= self.ctx.config.commit.uncommitted:
            return _begun(self._hold_up(batch))
        return self._writer.write(batch)

    def _hold_up(self, batch: Batch) -> Steps:
        """The records wait, with all that is behind them, until fewer checkpoints do."""
        ctx, most = self.ctx, self.ctx.config.commit.uncommitted
        ctx.metrics.gauge("heldUpByCommit", 1)
        _log.warning(
            "operator '%s', subtask %d: %d complete checkpoints are not committed yet, and no more "
            "records are taken before that (strom.sink.committer.max-uncommitted)",
            ctx.name,
            ctx.subtask,
            self._uncommitted(),
        )
        while self._uncommitted() >= most:
            while (at := self._retry_at) is not None and ctx.clock.now_ms() < at:
                ctx.wake_at(at)
                yield HELD
            self._retry_at = None
            yield from self._commit()
        ctx.metrics.gauge("heldUpByCommit", 0)
        work = self._writer.write(batch)
        if work is not None:
            yield from work

    def _uncommitted(self) -> int:
        """Complete checkpoints that hold something and are not committed."""
        complete = (p for p in self._pending if p.checkpoint_id <= self._complete)
        return sum(1 for p in complete if not p.known or p.committables())

    def on_processing_time(self, now_ms: int) -> Work:
        if self._writer.tends_every_ms is not None and now_ms >= self._tend_at:
            self._tend_later(now_ms)
            self._writer.tend()
        if self._retry_at is not None and now_ms >= self._retry_at and not self._committing:
            self._retry_at = None
            return _begun(self._commit())
        return None

    def finish(self) -> None:
        self._writer.finish()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        prepared = self._writer.prepare_commit(checkpoint_id)
        where = (self.ctx.name, self.ctx.subtask)
        self._pending.append(Prepared(checkpoint_id, prepared, where))
        known = [p for p in self._pending if p.known]
        self._state.update([item for p in known for item in p.items()])
        for late in self._pending:
            if late not in known:
                self.ctx.operator_state.set_deferred(COMMITTABLES.name, late.items)
        self._tell_pending()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> Work:
        """Commit, as far as that goes without waiting. An error leaves what is not committed
        pending."""
        self._complete = checkpoint_id
        self._tell_pending()
        if self._committing or self._retry_at is not None:
            return None  # what is committing, or waits to, goes on with this one
        return _begun(self._commit())

    @property
    def holds_end(self) -> bool:
        return bool(self._pending) and self._pending[0].checkpoint_id <= self._complete

    def _commit(self) -> Steps:
        """All that is complete, in order; up to one that fails and is tried again."""
        metrics = self.ctx.metrics
        while self.holds_end:
            head = self._pending[0]
            committables = head.committables()
            self._committing = True
            try:
                steps = self._writer.commit(committables)
                if steps is not None:
                    yield from steps
            except Exception as error:
                if not self._tries_later(error, f"checkpoint {head.checkpoint_id}", committables):
                    raise self._failed(error, head.checkpoint_id, len(committables)) from error
                return
            finally:
                self._committing = False
            self._tries.succeeded()
            metrics.count("committed", len(committables))
            metrics.count("successfulCommittables", len(committables))
            self._published += len(committables)
            self._published_to = head.checkpoint_id
            del self._pending[0]
            self._tell_pending()

    def _recover(self, restored: Sequence[tuple[int, Any]]) -> Steps:
        """What the restored checkpoint holds, whatever time it takes."""
        committables = [committable for _, committable in restored]
        while True:
            try:
                steps = self._writer.recover(committables)
                if steps is not None:
                    yield from steps
            except Exception as error:
                if not self._tries_later(error, "the restored checkpoint", committables):
                    raise self._failed(error, None, len(committables)) from error
            else:
                self._tries.succeeded()
                self.ctx.metrics.count("successfulCommittables", len(committables))
                return
            while (at := self._retry_at) is not None and self.ctx.clock.now_ms() < at:
                self.ctx.wake_at(at)
                yield HELD
            self._retry_at = None

    def _tries_later(self, error: Exception, what: str, committables: Sequence[Any]) -> bool:
        """Whether it is tried again: then at `_retry_at`, at which the operator is woken."""
        now_ms = self.ctx.clock.now_ms()
        at = self._tries.after(error, now_ms)
        if at is None:
            self.ctx.metrics.count("failedCommittables", len(committables))
            return False
        self._retry_at = at
        self.ctx.metrics.count("retriedCommittables", len(committables))
        _log.warning(
            "operator '%s', subtask %d: the commit of %s failed (try %d), and is tried again in "
            "%d ms: %s",
            self.ctx.name,
            self.ctx.subtask,
            what,
            self._tries.made,
            at - now_ms,
            described(error),
        )
        self.ctx.wake_at(at)
        return True

    def _failed(self, error: Exception, checkpoint_id: int | None, count: int) -> OperatorError:
        """`checkpoint_id`: of which the commit failed; None: of what was restored."""
        later = [p for p in self._pending if p.checkpoint_id != checkpoint_id]
        state = CommitState(
            checkpoint_id,
            count,
            self._writer.published,
            self._published_to,
            self._published,
            tuple(p.checkpoint_id for p in later),
            self._complete,
            self.ctx.config.checkpoint.storage is not None,
            self._tries.made,
            self._tries.lasted_ms(self.ctx.clock.now_ms()),
        )
        return commit_failed(self.ctx.name, self.ctx.subtask, error, state)

    def _tell_pending(self) -> None:
        known = sum(len(p.committables()) for p in self._pending if p.known)
        self.ctx.metrics.gauge("pendingCommittables", known)
        self.ctx.metrics.gauge("uncommittedCheckpoints", self._uncommitted())

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Keep what was prepared: the records before an aborted barrier belong to the next one."""

    def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        try:
            self._writer.close()
        except BaseException as error:
            warn_of_close(self.ctx.name, self.ctx.subtask, "its writer", error)

    def _tend_later(self, now_ms: int) -> None:
        every = self._writer.tends_every_ms
        if every is not None:
            self._tend_at = now_ms + every
            self.ctx.wake_at(self._tend_at)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        ids = [p.checkpoint_id for p in self._pending]
        assert ids == sorted(set(ids)), f"pending checkpoints {ids} are not ascending"
