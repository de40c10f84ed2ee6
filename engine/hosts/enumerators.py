"""The enumerators of one attempt: the user's code that runs beside the job master.

Whatever it raises becomes a StromError that names the operator.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...api.connectors.base import EnumeratorContext, SplitEnumerator
from ...api.specs.records import SourceSpec
from ...core.errors import CheckpointError, OperatorError, StromError
from ...core.failure_text import described, is_for_the_program, traced, with_place
from ...core.ids import CheckpointId, OperatorId, TaskId
from ..coordinator.split_requests import Answer
from ..exchange.pickling import Parcel, parcel
from ..graph.model import JobGraph
from ..messages import NoMoreSplits, SplitsAssigned

log = logging.getLogger("strom")


class LostSplitsError(StromError):
    """What readers have been given cannot be told again."""


class Enumerators:
    """Of one attempt after the other. All methods are called from one thread; any of them may take
    as long as the user's code takes."""

    def __init__(self, job: JobGraph, job_id: str, remembered: Collection[OperatorId] = ()) -> None:
        """`remembered`: those of which single readers may begin again; what is given to these is
        known until no restart goes back before it."""
        self._job_id = job_id
        self._made: dict[OperatorId, SplitEnumerator] = {}
        """Those of the current attempt; empty between `close` and `prepare`."""
        self._numbers: Counter[OperatorId] = Counter()
        """How often each has given something away."""
        self._given: dict[OperatorId, Given] = {}
        """Of each that is remembered."""
        self.adopt(job, remembered)

    def adopt(self, job: JobGraph, remembered: Collection[OperatorId]) -> None:
        """The job is this from now on, which has the same sources. Those that it has at another
        parallelism are made anew before they are asked for anything."""
        self._given = {operator: self._given.get(operator) or Given() for operator in remembered}
        self._sources = {
            operator.operator_id: (operator.name, vertex.parallelism, operator.spec)
            for vertex in job.vertices
            for operator in vertex.operators
            if isinstance(operator.spec, SourceSpec)
        }

    def prepare(self, states: Mapping[OperatorId, bytes]) -> None:
        """Make all, from their stored states where there are any. What could be made before one
        that raises waits for `close`."""
        for given in self._given.values():
            given.clear()
        self._make(self._sources, states)

    def take_over(
        self,
        states: Mapping[OperatorId, bytes],
        given: Mapping[OperatorId, Iterable[tuple[int, SplitsAssigned]]],
    ) -> None:
        """Make those of a job that runs, whose coordinator has died, from their states in the
        newest complete checkpoint and what readers (by their subtasks) have been given since: it is
        asked for again, in the order of then. An enumerator that answers as it did then is where it
        was; from any other, LostSplitsError."""
        self.prepare(states)
        for operator, answers in given.items():
            for subtask, known in sorted(answers, key=lambda one: one[1].number):
                self._numbers[operator] = known.number
                answer = self.next_splits(operator, subtask)
                if not isinstance(answer, SplitsAssigned) or not _is_same(answer, known):
                    raise LostSplitsError(
                        f"operator '{self._sources[operator][0]}': its enumerator gives out other "
                        "splits than before the coordinator died"
                    )

    def restart(
        self,
        sources: Iterable[OperatorId],
        states: Mapping[OperatorId, bytes],
        readers: Iterable[tuple[OperatorId, TaskId]],
    ) -> list[tuple[TaskId, Answer]]:
        """Some readers begin again. Make the enumerators of `sources` anew; of the others, return
        what each of `readers` was given since the checkpoint, in order."""
        sources = tuple(sources)
        for problem in self._close(sources):
            log.warning("job %s: %s", self._job_id, problem)
        for operator in sources:
            if operator in self._given:
                self._given[operator].clear()
        self._make(sources, states)
        return [
            (task, answer)
            for operator, task in readers
            for answer in self._given[operator].to(task.subtask)
        ]

    def forget(self, checkpoint_id: CheckpointId) -> None:
        """Nothing goes back before this checkpoint any more."""
        for given in self._given.values():
            given.forget(checkpoint_id)

    def _make(self, sources: Iterable[OperatorId], states: Mapping[OperatorId, bytes]) -> None:
        for operator in sources:
            name, parallelism, spec = self._sources[operator]
            state = _load(name, states[operator]) if operator in states else None
            context = EnumeratorContext(name, parallelism, self._job_id)
            try:
                self._made[operator] = spec.source.create_enumerator(context, state)
            except BaseException as error:
                raise _failed(name, 0, "its enumerator could not be made", error) from error

    def next_splits(self, operator: OperatorId, subtask: int) -> Answer | None:
        """The answer for a reader without splits; None: there are none for it now."""
        try:
            splits = self._made[operator].next_splits(subtask)
            if splits is None:
                return NoMoreSplits(operator)
            if not len(splits):
                return None
            answer = SplitsAssigned(operator, tuple(splits), self._numbers[operator])
            self._numbers[operator] += 1
            if operator in self._given:
                self._given[operator].add(subtask, answer)
            return answer
        except BaseException as error:
            name = self._sources[operator][0]
            raise _failed(name, subtask, "its enumerator failed", error) from error

    def snapshot(self, checkpoint_id: CheckpointId) -> dict[OperatorId, bytes]:
        """What every enumerator has not assigned yet, pickled at once: it may be changed later."""
        from ...core import code_pickles

        states: dict[OperatorId, bytes] = {}
        for operator, enumerator in self._made.items():
            try:
                states[operator] = code_pickles.dumps(enumerator.snapshot())
            except BaseException as error:
                raise CheckpointError(
                    f"operator '{self._sources[operator][0]}': the snapshot of its enumerator "
                    f"failed: {with_place(error)}\n{traced(error)}"
                ) from error
        for given in self._given.values():
            given.mark(checkpoint_id)
        return states

    def close(self) -> list[str]:
        """Release all, also when some raise; what they raised, as text."""
        return self._close(list(self._made))

    def _close(self, operators: Iterable[OperatorId]) -> list[str]:
        problems = []
        for operator in operators:
            enumerator = self._made.pop(operator, None)
            try:
                if enumerator is not None:
                    enumerator.close()
            except BaseException as error:
                problems.append(
                    f"operator '{self._sources[operator][0]}': closing its enumerator failed: "
                    f"{described(error)}"
                )
        return problems


class Given:
    """What the readers of one source were given since the oldest checkpoint that a restart may go
    back to.

    >>> given = Given()
    >>> given.add(0, ("a",)); given.mark(CheckpointId(1)); given.add(1, ("b",))
    >>> given.add(0, ("c",)); given.mark(CheckpointId(2)); given.add(0, ("d",))
    >>> given.to(0), given.forget(CheckpointId(1)), given.to(0), given.to(1)
    ([('a',), ('c',), ('d',)], None, [('c',), ('d',)], [('b',)])
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Of no attempt."""
        self._given: deque[tuple[int, Any]] = deque()
        """Subtask and answer, in order."""
        self._forgotten = 0
        """How many came before these."""
        self._marks: dict[CheckpointId, int] = {}
        """How many had been given before each snapshot; ascending."""

    def add(self, subtask: int, answer: Any) -> None:
        self._given.append((subtask, answer))

    def mark(self, checkpoint_id: CheckpointId) -> None:
        """The snapshot of a checkpoint is taken."""
        self._marks[checkpoint_id] = self._forgotten + len(self._given)

    def forget(self, checkpoint_id: CheckpointId) -> None:
        """What was given before that snapshot; it may be of an attempt before."""
        until = self._marks.get(checkpoint_id, 0)
        while self._forgotten < until:
            self._given.popleft()
            self._forgotten += 1
        self._marks = {n: count for n, count in self._marks.items() if n > checkpoint_id}

    def to(self, subtask: int) -> list[Any]:
        return [answer for reader, answer in self._given if reader == subtask]


def _is_same(answer: SplitsAssigned, known: SplitsAssigned) -> bool:
    """Whether the splits are those that a task was given, maybe in a parcel."""
    try:
        if isinstance(known.splits, Parcel):
            return bool(parcel(answer.splits, "split", "a reader") == known.splits)
        return bool(answer.splits == tuple(known.splits))
    except Exception:
        return False  # they cannot be compared


def _load(name: str, pickled: bytes) -> Any:
    """An enumerator's state from a manifest."""
    import pickle

    try:
        return pickle.loads(pickled)
    except BaseException as error:
        raise CheckpointError(
            f"operator '{name}': the stored state of its enumerator cannot be read: "
            f"{described(error)}"
        ) from error


def _failed(operator: str, subtask: int, what: str, error: BaseException) -> BaseException:
    """The error under the operator's name; what is meant for the program itself stays as it is."""
    if is_for_the_program(error):
        return error
    return OperatorError(operator, subtask, f"{what}: {with_place(error)}", traced(error))
