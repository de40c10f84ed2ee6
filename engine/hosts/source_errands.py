"""What the driver has done by the user's code: the enumerators of sources, and sinks that are taken
over before the first attempt and released behind the last."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...core.errors import OutputRefusedError, StromError
from ...core.ids import Attempt, OperatorId
from ..coordinator.actions import (
    Actions,
    AskForSplits,
    CloseSources,
    ForgetSplits,
    PrepareSources,
    RestartReaders,
    SnapshotSources,
    TakeOverSources,
)
from ..coordinator.job_master import JobMaster
from ..graph.model import JobGraph
from ..messages import SplitsAssigned
from .enumerators import Enumerators
from .errand_events import Event, Heard, MakeBackground, nothing
from .loading import Loaded
from .outputs import Outputs

log = logging.getLogger("strom")

SourceAction = (
    PrepareSources
    | TakeOverSources
    | RestartReaders
    | AskForSplits
    | SnapshotSources
    | ForgetSplits
    | CloseSources
)


class SourceErrands:
    """Of one job. Used from the driver's thread."""

    def __init__(
        self,
        make_background: MakeBackground,
        master: JobMaster,
        job: JobGraph,
        job_id: str,
        outputs: Outputs,
    ) -> None:
        """The events that `take` returns are for `master`."""
        self._master = master
        self._job_id = job_id
        self.outputs = outputs
        """Touched by the worker only, but for its tokens while that has nothing to do."""
        self._enumerators = Enumerators(job, job_id, master.shared_sources)
        """Touched by the worker only."""
        self._worker = make_background(f"{job.name}-sources")
        self._answers: deque[Event] = deque()
        """Filled by the worker, in the order in which it got done."""
        self._owed = 0
        """Begun, and not taken yet."""

    @property
    def idle(self) -> bool:
        """Whether everything is done and taken."""
        return self._owed == 0

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take."""
        return bool(self._answers)

    def take(self) -> Event | None:
        """The oldest answer; None if there is none."""
        if not self._answers:
            return None
        self._owed -= 1
        return self._answers.popleft()

    def close(self, wait_s: float) -> None:
        """Drop what has not begun, and the answers to the rest."""
        self._worker.close(wait_s)
        self._answers.clear()

    def begin(self, action: SourceAction, loaded: Loaded) -> None:
        """Behind what was begun before. `loaded`: what the attempt starts from."""
        enumerators, master = self._enumerators, self._master
        if isinstance(action, ForgetSplits):
            self._begin(partial(enumerators.forget, action.checkpoint_id), _ignored)
            return
        attempt = action.attempt
        match action:
            case RestartReaders(_, began, sources, states, readers):
                self._ask(
                    began,
                    partial(enumerators.restart, sources, states, readers),
                    lambda repeated, now: master.on_readers_ready(attempt, repeated, now),
                )
            case PrepareSources(_, states):
                self._ask(
                    attempt,
                    partial(self._prepare, states, loaded),
                    lambda _, now: master.on_sources_ready(attempt, now),
                )
            case TakeOverSources(_, _, states, given, shown):
                self._ask(
                    attempt,
                    partial(self._take_over, states, given, shown, loaded),
                    lambda _, now: master.on_sources_ready(attempt, now),
                )
            case AskForSplits(_, operator, task):
                self._ask(
                    attempt,
                    partial(enumerators.next_splits, operator, task.subtask),
                    lambda answer, now: master.on_splits(attempt, operator, task, answer, now),
                )
            case SnapshotSources(_, n):
                self._ask(
                    attempt,
                    partial(enumerators.snapshot, n),
                    lambda states, now: master.on_sources_snapshot(attempt, n, states, now),
                )
            case CloseSources():
                self._begin(enumerators.close, self._closed)

    def adopt(self, job: JobGraph) -> None:
        """The job is this from now on; enumerators that change are made anew behind this."""
        self._begin(partial(self._enumerators.adopt, job, self._master.shared_sources), _ignored)

    def release_outputs(self, status: str) -> None:
        """The job is over."""
        self._begin(partial(self.outputs.release, status), _ignored)

    def _ask(
        self, attempt: Attempt, work: Callable[[], Any], then: Callable[[Any, int], Actions]
    ) -> None:
        """`then`: the event of a result."""

        def event(result: Any, error: BaseException | None) -> Event:
            if error is not None:
                why = str(error) if isinstance(error, StromError) else repr(error)
                again = not isinstance(error, OutputRefusedError)
                return lambda now: self._master.on_source_failed(attempt, why, now, again)
            return lambda now: then(result, now)

        self._begin(work, event)

    def _prepare(self, states: Mapping[OperatorId, bytes], loaded: Loaded) -> None:
        """The sinks first: what they refuse is not begun."""
        self.outputs.take(loaded.origin, loaded.epochs)
        self._enumerators.prepare(states)

    def _take_over(
        self,
        states: Mapping[OperatorId, bytes],
        given: Mapping[OperatorId, tuple[tuple[int, SplitsAssigned], ...]],
        shown: Mapping[str, frozenset[str]],
        loaded: Loaded,
    ) -> None:
        self.outputs.take(loaded.origin, loaded.epochs, shown)
        self._enumerators.take_over(states, given)

    def _closed(self, problems: list[str], error: BaseException | None) -> Event:
        for problem in problems or []:
            log.warning("job %s: %s", self._job_id, problem)
        if error is not None:
            log.warning("job %s: closing its sources failed: %r", self._job_id, error)
        return nothing

    def _begin(self, work: Callable[[], Any], event: Heard) -> None:
        """Have it done; what comes of it is known when the answer is taken."""
        self._owed += 1
        self._worker.submit(
            work, lambda r, e: self._answers.append(lambda now_ms: event(r, e)(now_ms))
        )


def _ignored(_: Any, error: BaseException | None) -> Event:
    """The answer to what cannot fail."""
    if error is not None:
        raise error
    return nothing
