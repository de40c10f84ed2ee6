"""The enumerators of one attempt: the user's code that runs beside the job master.

Whatever it raises becomes a StromError that names the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...api.connectors.base import EnumeratorContext, SplitEnumerator
from ...api.specs.records import SourceSpec
from ...core.errors import CheckpointError, OperatorError
from ...core.failure_text import described, is_for_the_program, traced, with_place
from ...core.ids import OperatorId
from ..coordinator.split_requests import Answer
from ..graph.model import JobGraph
from ..messages import NoMoreSplits, SplitsAssigned


class Enumerators:
    """Of one attempt after the other. All methods are called from one thread; any of them may take
    as long as the user's code takes."""

    def __init__(self, job: JobGraph, job_id: str) -> None:
        self._job_id = job_id
        self._sources = {
            operator.operator_id: (operator.name, vertex.parallelism, operator.spec)
            for vertex in job.vertices
            for operator in vertex.operators
            if isinstance(operator.spec, SourceSpec)
        }
        self._made: dict[OperatorId, SplitEnumerator] = {}
        """Those of the current attempt; empty between `close` and `prepare`."""

    def prepare(self, states: Mapping[OperatorId, bytes]) -> None:
        """Make all, from their stored states where there are any. What could be made before one
        that raises waits for `close`."""
        for operator, (name, parallelism, spec) in self._sources.items():
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
            return SplitsAssigned(operator, tuple(splits)) if len(splits) else None
        except BaseException as error:
            name = self._sources[operator][0]
            raise _failed(name, subtask, "its enumerator failed", error) from error

    def snapshot(self) -> dict[OperatorId, bytes]:
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
        return states

    def close(self) -> list[str]:
        """Release all, also when some raise; what they raised, as text."""
        problems = []
        made, self._made = self._made, {}
        for operator, enumerator in made.items():
            try:
                enumerator.close()
            except BaseException as error:
                problems.append(
                    f"operator '{self._sources[operator][0]}': closing its enumerator failed: "
                    f"{described(error)}"
                )
        return problems


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
