"""The enumerators of one attempt: who waits for splits, what is unassigned.

User code runs here, in the coordinator: whatever it raises becomes a StromError that names the
operator.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from ...api.connectors.base import SplitEnumerator
from ...core.errors import CheckpointError, OperatorError
from ...core.ids import OperatorId, TaskId
from ..messages import NoMoreSplits, SplitsAssigned

SPLIT_RETRY_MS = 100
"""How long a reader waits before an enumerator that had no splits for it is asked again."""

Answer = SplitsAssigned | NoMoreSplits


class EnumeratorSet:
    """Holds the enumerators from their creation until `close`."""

    def __init__(
        self,
        enumerators: Mapping[OperatorId, SplitEnumerator],
        names: Mapping[OperatorId, str],
    ) -> None:
        self._enumerators = dict(enumerators)
        self._names = names
        self._waiting: dict[tuple[OperatorId, TaskId], None] = {}
        """Requests not yet answered, in order of arrival."""
        self._started = False
        """Whether requests are answered; until then they are remembered."""
        self._retry_at_ms: int | None = None
        """When to ask for them again; None exactly when there are none or nothing is answered."""

    @property
    def retry_at_ms(self) -> int | None:
        """When `retry` should be called."""
        return self._retry_at_ms

    def request(
        self, operator: OperatorId, task: TaskId, now_ms: int
    ) -> list[tuple[TaskId, Answer]]:
        """The answer to a reader without splits; empty: remembered, there are none now."""
        if operator not in self._enumerators:
            raise OperatorError(operator, task.subtask, "asked for splits but is no source")
        if not self._started:
            self._waiting[operator, task] = None
            return []
        answer = self._ask(operator, task)
        if answer is not None:
            return [(task, answer)]
        self._waiting[operator, task] = None
        if self._retry_at_ms is None:
            self._retry_at_ms = now_ms + SPLIT_RETRY_MS
        return []

    def start(self, now_ms: int) -> list[tuple[TaskId, Answer]]:
        """All tasks run: from now on requests are answered; the answers to those that wait."""
        self._started = True
        if self._waiting:
            self._retry_at_ms = now_ms
        return self.retry(now_ms)

    def retry(self, now_ms: int) -> list[tuple[TaskId, Answer]]:
        """Ask again for those that wait, if it is time."""
        if self._retry_at_ms is None or now_ms < self._retry_at_ms:
            return []
        answers = []
        for operator, task in list(self._waiting):
            answer = self._ask(operator, task)
            if answer is not None:
                del self._waiting[operator, task]
                answers.append((task, answer))
        self._retry_at_ms = now_ms + SPLIT_RETRY_MS if self._waiting else None
        return answers

    def snapshot(self) -> dict[OperatorId, bytes]:
        """What every enumerator has not assigned yet, pickled at once: it may be changed later."""
        import cloudpickle

        states: dict[OperatorId, bytes] = {}
        for operator, enumerator in self._enumerators.items():
            try:
                states[operator] = cloudpickle.dumps(enumerator.snapshot())
            except Exception as error:
                raise CheckpointError(
                    f"operator '{self._name(operator)}': the snapshot of its enumerator failed: "
                    f"{_summary(error)}\n{traceback.format_exc()}"
                ) from error
        return states

    def close(self) -> list[str]:
        """Release all enumerators, also when some raise; what they raised, as text."""
        problems = []
        for operator, enumerator in self._enumerators.items():
            try:
                enumerator.close()
            except Exception as error:
                problems.append(
                    f"operator '{self._name(operator)}': closing its enumerator failed: "
                    f"{_summary(error)}"
                )
        self._enumerators.clear()
        self._waiting.clear()
        self._retry_at_ms = None
        return problems

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        assert (self._retry_at_ms is None) == (not self._waiting or not self._started)
        assert all(operator in self._enumerators for operator, _ in self._waiting)

    def _ask(self, operator: OperatorId, task: TaskId) -> Answer | None:
        try:
            splits = self._enumerators[operator].next_splits(task.subtask)
            if splits is None:
                return NoMoreSplits(operator)
            return SplitsAssigned(operator, tuple(splits)) if len(splits) else None
        except Exception as error:
            raise OperatorError(
                self._name(operator),
                task.subtask,
                f"its enumerator failed: {_summary(error)}",
                traceback.format_exc(),
            ) from error

    def _name(self, operator: OperatorId) -> str:
        return self._names.get(operator, operator)


def load_states(pickled: Mapping[OperatorId, bytes]) -> dict[OperatorId, Any]:
    """The enumerator states of a manifest."""
    import pickle

    states = {}
    for operator, data in pickled.items():
        try:
            states[operator] = pickle.loads(data)
        except Exception as error:
            raise CheckpointError(
                f"operator '{operator}': the stored state of its enumerator cannot be read: "
                f"{_summary(error)}"
            ) from error
    return states


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
