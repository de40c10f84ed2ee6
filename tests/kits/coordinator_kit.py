"""A job master whose enumerators answer at once: for tests that are about something else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import cloudpickle
from strom.core.ids import Attempt
from strom.engine.coordinator.actions import (
    Action,
    Actions,
    AskForSplits,
    CloseSources,
    PrepareSources,
    SnapshotSources,
)
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.messages import NoMoreSplits, SplitsAssigned

EVENTS = ("start", "on_")


class PromptSources:
    """Has the methods of a job master. Each event returns its actions without those for the
    sources, which are carried out at once, and then what follows from their answers."""

    def __init__(self, master: JobMaster, make: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """`make`: from restored states to enumerators, by operator."""
        self._master = master
        self._make = make
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._master, name)
        return (lambda *args: self._settle(method(*args), args[-1])) if _is_event(name) else method

    def on_load_failed(self, reason: str, now_ms: int, recoverable: bool = True) -> Actions:
        return self._settle(self._master.on_load_failed(reason, now_ms, recoverable), now_ms)

    def _settle(self, actions: Actions, now_ms: int) -> Actions:
        left: list[Action] = []
        waiting = deque(actions)
        while waiting:
            action = waiting.popleft()
            match action:
                case PrepareSources() | AskForSplits() | SnapshotSources():
                    waiting.extend(self._answer(action, now_ms))
                case CloseSources():
                    self._close()
                case _:
                    left.append(action)
        return tuple(left)

    def _answer(
        self, action: PrepareSources | AskForSplits | SnapshotSources, now_ms: int
    ) -> Actions:
        try:
            return self._call(action, now_ms)
        except RuntimeError as error:
            return self._master.on_source_failed(Attempt(action.attempt), repr(error), now_ms)

    def _call(
        self, action: PrepareSources | AskForSplits | SnapshotSources, now_ms: int
    ) -> Actions:
        attempt = action.attempt
        match action:
            case PrepareSources(_, states):
                assert not self._made, "the sources of two attempts at once"
                self._made = self._make({o: cloudpickle.loads(s) for o, s in states.items()})
                return self._master.on_sources_ready(attempt, now_ms)
            case AskForSplits(_, operator, task):
                splits = self._made[operator].next_splits(task.subtask)
                some = SplitsAssigned(operator, tuple(splits)) if splits else None
                answer = NoMoreSplits(operator) if splits is None else some
                return self._master.on_splits(attempt, operator, task, answer, now_ms)
            case SnapshotSources(_, n):
                states = {o: cloudpickle.dumps(e.snapshot()) for o, e in self._made.items()}
                return self._master.on_sources_snapshot(attempt, n, states, now_ms)

    def _close(self) -> None:
        made, self._made = self._made, {}
        for enumerator in made.values():
            enumerator.close()


def _is_event(name: str) -> bool:
    return name.startswith(EVENTS)
