"""What is outside of a simulated job: where it writes to, which is away now and then.

`Outside` fails the commits of every `CollectSink` and `StagedSink`: for some ms each of them does,
the first one when a part of what it was given is published. `StagedSink` is in the manner of files:

    prepare    the records lie aside, under a name
    commit     they are moved to where all see them, once; who is not the last one to have taken
               over the sink moves nothing
    removal    at the first commit of an attempt what former ones left aside, and nobody may ask
               for it any more
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

from ...api.connectors.base import OutputClaim, PreparedCommit, Sink, SinkWriter, WriterContext
from ...core.batch import Batch
from ...core.errors import FencedError, OutputRefusedError, RetryableCommitError
from ...core.ids import OperatorId

CLOSED: Final = "where the sink writes to is away, as the simulation wants it"
"""In each error that is not the engine's."""

OUTAGES: Final = 4
"""So often it may be away; all goes well from then on."""

LONGEST_MS: Final = 6

_UNKNOWN_ONE_IN: Final = 5
"""Of so many failures one says nothing of whether it will pass: the task fails."""


@dataclass(frozen=True)
class _Aside:
    operator: str
    token: str
    attempt: int
    values: list[Any]


class Outside:
    """Of all lives of a case. Invariant: a name is aside or published, not both."""

    def __init__(self, seed: int, per_thousand: int) -> None:
        """Of a thousand commits so many begin a time in which all fail."""
        self._rng = random.Random(f"outside-{seed}")
        self._per_thousand = per_thousand
        self._until = 0
        """It is away until then (ms)."""
        self._outages = 0
        self._owners: dict[str, OutputClaim] = {}
        """By operator: who has taken over last."""
        self._aside: dict[str, _Aside] = {}
        self._published: dict[str, _Aside] = {}
        self.failed = 0
        """Commits."""

    def begin(self) -> None:
        """Another life begins, whose clock does, too."""
        self._until = 0

    def commit(
        self, now_ms: int, committables: Sequence[Any], publish: Callable[[Sequence[Any]], None]
    ) -> None:
        """Publish all of them; or some, and raise."""
        if now_ms >= self._until:
            begins = self._per_thousand and self._rng.randrange(1000) < self._per_thousand
            if not begins or self._outages >= OUTAGES:
                publish(committables)
                return
            self._outages += 1
            self._until = now_ms + self._rng.randint(1, LONGEST_MS)
            done = self._rng.randint(0, len(committables))
            publish(committables[:done])
        self.failed += 1
        if self._rng.randrange(_UNKNOWN_ONE_IN) == 0:
            raise ValueError(CLOSED)
        raise RetryableCommitError(CLOSED)

    # --- of `StagedSink` ----------------------------------------------------------------------

    def take_over(self, claim: OutputClaim) -> None:
        last = self._owners.get(claim.operator_id)
        if last is not None and last.job_id == claim.job_id and last.epoch > claim.epoch:
            raise OutputRefusedError(
                f"nothing is written any more by epoch {claim.epoch}: there is {last.epoch}"
            )
        self._owners[claim.operator_id] = claim
        if claim.origin is not None:
            job_id, n = claim.origin
            for name, aside in list(self._published.items()):
                behind = int(name.rpartition("-")[2]) > n
                if behind and aside.operator == claim.operator_id and name.startswith(f"{job_id}/"):
                    del self._published[name]

    def last_token(self, operator_id: str) -> str:
        """Of who has taken over last; empty: nobody has."""
        owner = self._owners.get(operator_id)
        return "" if owner is None else owner.token

    def check_owner(self, context: WriterContext) -> None:
        owner = self._owners[context.operator_id]
        if owner.token != context.token:
            raise FencedError(
                f"nothing is written any more by epochs before {owner.epoch} of job {owner.job_id}"
            )

    def lay_aside(self, name: str, context: WriterContext, values: list[Any]) -> None:
        assert name not in {*self._aside, *self._published}, f"{name} is there already"
        aside = _Aside(context.operator_id, context.token, context.attempt, values)
        self._aside[name] = aside

    def publish(self, name: str) -> None:
        if name not in self._published:
            assert name in self._aside, f"{name} was removed, and is to be published"
            self._published[name] = self._aside.pop(name)

    def remove_leftovers(self, context: WriterContext) -> None:
        """Of attempts before this one, and of other jobs and coordinators."""
        for name, aside in list(self._aside.items()):
            former = aside.token != context.token or aside.attempt < context.attempt
            if aside.operator == context.operator_id and former:
                del self._aside[name]

    def output(self) -> dict[OperatorId, list[list[Any]]]:
        """What is published, by operator."""
        found: dict[OperatorId, list[list[Any]]] = {}
        for aside in self._published.values():
            found.setdefault(OperatorId(aside.operator), []).append(aside.values)
        return found


_OUTSIDE: ContextVar[Outside] = ContextVar("_OUTSIDE")


@contextmanager
def entered(outside: Outside) -> Iterator[None]:
    """What sinks of this thread write to."""
    token = _OUTSIDE.set(outside)
    try:
        yield
    finally:
        _OUTSIDE.reset(token)


class StagedSink(Sink):
    revocable = True

    def create_writer(self, context: WriterContext) -> StagedWriter:
        return StagedWriter(context)

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        _OUTSIDE.get().take_over(claim)
        return ()


class CountedSink(StagedSink):
    """In the manner of Kafka and Delta, which only count who takes over, but for a coordinator that
    goes on with the writers of the one that did so last."""

    def __init__(self) -> None:
        self._told = ""

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        last = _OUTSIDE.get().last_token(claim.operator_id)
        self._told = last if self._knows(last, claim) else f"{claim.token}.{claim.epoch}"
        return super().take_over(replace(claim, token=self._told))

    def _knows(self, last: str, claim: OutputClaim) -> bool:
        return last in claim.shown

    def writers_token(self, claim: OutputClaim) -> str:
        return self._told


class BlindSink(CountedSink):
    """It counts all that take over: tasks that a coordinator goes on with are refused once it has,
    and begin again."""

    def _knows(self, last: str, claim: OutputClaim) -> bool:
        return False


class StagedWriter(SinkWriter):
    """Committables are names, with how many records there are."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._outside = _OUTSIDE.get()
        self._pending: list[Any] = []
        self._committed = False
        """Whether a commit was behind a checkpoint of this attempt."""

    def write(self, batch: Batch) -> None:
        self._pending.extend(batch.rows())

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        values, self._pending = self._pending, []
        if not values:
            return []
        c = self._context
        who = f"{c.job_id}/{c.operator_id}-{c.token}-{c.attempt}-{c.subtask}"
        name = f"{who}-{checkpoint_id}"

        def prepare() -> list[tuple[str, int]]:
            self._outside.lay_aside(name, c, values)
            return [(name, len(values))]

        return prepare if checkpoint_id % 2 else prepare()

    def commit(self, committables: Sequence[tuple[str, int]]) -> None:
        self._publish(committables)
        if not self._committed:
            self._committed = True
            self._outside.remove_leftovers(self._context)

    def recover(self, committables: Sequence[tuple[str, int]]) -> None:
        self._publish(committables)

    def _publish(self, committables: Sequence[tuple[str, int]]) -> None:
        def publish(some: Sequence[tuple[str, int]]) -> None:
            self._outside.check_owner(self._context)
            for name, _ in some:
                self._outside.publish(name)

        self._outside.commit(self._context.clock.now_ms(), committables, publish)

    def revoke(self, after: int) -> None:
        """Never: no checkpoint of a simulation is damaged."""
        raise AssertionError(f"revoked behind checkpoint {after}")
