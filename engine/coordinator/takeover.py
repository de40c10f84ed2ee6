"""What a new coordinator makes of the tasks that the one before it has left running. Pure.

    LoadLatest ─▶ FindTasks ─▶ nobody runs: the job starts as ever
                     │
                     └──▶ TakeOverSources ─▶ RUNNING: checkpoints and split requests begin anew
                                │
                                └ the splits cannot be told again: a failure, as any other

The tasks stop for none of it. What only the coordinator before knew is made anew: of checkpoints
that were on nothing is left (they are aborted, and their numbers not used again); that the newest
complete one is complete is said once more; and the enumerators are asked again, from their states
in that one on, for what readers say that they have been given since. A task that is not there, or
not running, has failed: that is a failure of its region, as ever. Tasks of another shape than the
job's are no tasks of it. They are of a rescale that was on, which goes on if the rest of the job
runs (`transitions`); nobody goes on beside any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...checkpoint.manifest import Manifest
from ...core.ids import NO_CHECKPOINT, Attempt, CheckpointId, OperatorId, TaskId, VertexId
from ..accounts import Stage, TaskAccount
from ..messages import SplitsAssigned, ValuePublished
from .failures import Failure
from .plan import JobPlan
from .regions import Reader

Given = Mapping[OperatorId, tuple[tuple[int, SplitsAssigned], ...]]
"""By source: what its readers (their subtasks) were given."""


@dataclass(frozen=True)
class TakeOver:
    """`attempt`: the newest that any task has. `dealt`: by vertex of tasks that go on, the
    checkpoint whose state was dealt out to it; none, if all of these have begun again since, each
    with its own share of a later one. `attempts`: of all tasks. `running`, `drained`, `finished`:
    those that go on, as of `Progress`. `failures`: why the others do not. `others`: those that were
    found of another shape, before or behind a rescale.
    `newest`: the newest complete checkpoint that the storage or a task knows of; `seen`: the
    highest number that is used up. `terminal`: `newest` is the job's last one, and tasks only have
    to commit it. `ending`: sources were told to end, for a savepoint that is not complete."""

    attempt: Attempt
    dealt: Mapping[VertexId, CheckpointId]
    attempts: Mapping[TaskId, Attempt]
    running: frozenset[TaskId]
    drained: frozenset[TaskId]
    finished: frozenset[TaskId]
    failures: tuple[Failure, ...]
    others: tuple[TaskId, ...]
    newest: CheckpointId
    seen: CheckpointId
    terminal: bool
    ending: bool
    asked: tuple[Reader, ...]
    given: Given
    watermarks: tuple[tuple[OperatorId, TaskId, int | None], ...]
    shown: Mapping[str, frozenset[str]]
    """By operator, what writers show of who has taken over what they write to, whatever state they
    are in."""
    published: tuple[ValuePublished, ...]
    """All that was published behind `newest`, but for tasks that are gone, which begin with it and
    publish that once more; and maybe some of before."""
    fenced: str | None
    """Why nobody goes on, where that is what a task found that it had left: who was between the two
    coordinators may have what it writes to."""
    strange: bool
    """The storage has `newest`, and a source has not heard of it: it was given up, and published
    after all, behind an attempt that went back before it. Nobody goes on beside that."""

    @property
    def aborted(self) -> tuple[CheckpointId, ...]:
        """Checkpoints of which tasks may hold something."""
        return tuple(CheckpointId(n) for n in range(self.newest + 1, self.seen + 1))


def take_over(
    plan: JobPlan, accounts: Iterable[TaskAccount], manifest: Manifest | None, highest_id: int
) -> TakeOver | None:
    """`accounts`: of all that were found, whatever state they are in. `manifest`: the newest valid
    checkpoint that the job can go back to. `highest_id`: as of `Latest`. None: no task goes on."""
    known = tuple(accounts)
    found = {one.task: one for one in known if one.task in plan.labels and _is_of(plan, one)}
    alive = {task: one for task, one in found.items() if one.stage.goes_on}
    if not alive:
        return None
    attempt = Attempt(max(one.attempt for one in known))
    stored = NO_CHECKPOINT if manifest is None else manifest.checkpoint_id
    newest = CheckpointId(max(stored, *(one.completed for one in found.values())))
    seen = CheckpointId(max(newest, highest_id, *(one.seen for one in known)))
    own = manifest is not None and manifest.job_id == plan.job_id and stored == newest
    terminal = own and manifest is not None and (manifest.terminal or manifest.stopped)
    given: dict[OperatorId, list[tuple[int, SplitsAssigned]]] = {}
    for task, one in alive.items():
        for answer in one.given_since(newest):
            given.setdefault(answer.operator, []).append((task.subtask, answer))
    return TakeOver(
        attempt=attempt,
        dealt=_dealt(alive.values()),
        attempts={task: found[task].attempt if task in found else attempt for task in plan.tasks},
        running=frozenset(alive),
        drained=_in(alive, Stage.DRAINED, Stage.FINISHED),
        finished=_in(alive, Stage.FINISHED),
        failures=tuple(
            _failure(plan, task, found.get(task)) for task in plan.tasks if task not in alive
        ),
        others=tuple(one.task for one in known if not _is_of(plan, one)),
        newest=newest,
        seen=seen,
        terminal=terminal,
        ending=any(one.ending for one in alive.values()) and not terminal,
        asked=tuple((o, task) for task in plan.tasks if task in alive for o in alive[task].asked),
        given={operator: tuple(answers) for operator, answers in given.items()},
        watermarks=tuple(
            (operator, task, watermark)
            for task, one in alive.items()
            for operator, watermark in one.watermarks.items()
        ),
        shown=_shown(known),
        fenced=next(
            (fenced_before(f.error) for one in found.values() if (f := one.failure) and f.fenced),
            None,
        ),
        strange=stored == newest
        and any(not _knows(alive[task], newest) for task in plan.sources if task in alive),
        published=tuple(value for one in found.values() for value in one.published),
    )


def fenced_before(error: str) -> str:
    """Why the tasks that another coordinator has started do not go on. What they write to was taken
    over by somebody else, or is by this coordinator only: its own tasks find out."""
    return f"what the tasks of the coordinator before write to was taken over: {error}"


def _shown(found: Iterable[TaskAccount]) -> dict[str, frozenset[str]]:
    shown: dict[str, frozenset[str]] = {}
    for one in found:
        for operator, token in one.tokens.items():
            shown[operator] = shown.get(operator, frozenset()) | {token}
    return shown


def _knows(source: TaskAccount, n: CheckpointId) -> bool:
    """Whether it began with this checkpoint, took part in it, or heard that one so new is
    complete."""
    return n in source.marks or n <= max(source.completed, source.began_with)


def begun(accounts: Iterable[TaskAccount], highest_id: int) -> list[CheckpointId]:
    """Checkpoints behind the highest that the storage has, of which tasks have heard."""
    seen = max(one.seen for one in accounts)
    return [CheckpointId(n) for n in range(highest_id + 1, seen + 1)]


def _is_of(plan: JobPlan, one: TaskAccount) -> bool:
    """Whether it is a task of the job as that is now."""
    return one.shape in ("", plan.shape_of.get(one.task.vertex))


def _dealt(alive: Iterable[TaskAccount]) -> dict[VertexId, CheckpointId]:
    found: dict[VertexId, CheckpointId] = {}
    for one in alive:
        known = NO_CHECKPOINT if one.own_share else one.began_with
        found[one.task.vertex] = max(found.get(one.task.vertex, NO_CHECKPOINT), known)
    return found


def _in(alive: Mapping[TaskId, TaskAccount], *stages: Stage) -> frozenset[TaskId]:
    return frozenset(task for task, one in alive.items() if one.stage in stages)


def _failure(plan: JobPlan, task: TaskId, account: TaskAccount | None) -> Failure:
    """Why a task that was not found running does not run."""
    label = plan.labels[task]
    if account is None:
        return Failure(f"task {label} was lost while the job had no coordinator", task=task)
    told = account.failure
    if told is not None:
        return Failure(told.error, told.recoverable, told.symptom, task)
    what = "being started" if account.stage is Stage.STARTING else "being stopped"
    return Failure(f"task {label} was {what} when the job's coordinator died", task=task)
