"""The engine, broken in known ways: each has to be found, or the simulation looks at nothing.

A mutation replaces one method as long as it is entered. `KNOWN` has a case that is known to find
it, for tests; `catch` looks for the first that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from ...autoscaling.steering import Steering
from ...checkpoint.barrier_alignment import BarrierAligner
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.epochs import Tenant
from ...checkpoint.shared_files import SharedFiles
from ...core.errors import StromError
from ...core.ids import EVEN, CheckpointId, TaskId
from ...engine.coordinator.attempt_numbers import AttemptNumbers
from ...engine.coordinator.job_master import JobMaster
from ...engine.coordinator.regions import Region
from ...engine.coordinator.rescaled_part import Part
from ...engine.coordinator.rescales import Rescales
from ...engine.exchange.credits import SenderLedger
from ...engine.exchange.partitioners import _ByKey
from ...engine.hosts.outputs import Outputs
from ...engine.hosts.result_log import ResultLog
from ...engine.hosts.tenure import Tenure
from ...engine.task.checkpointing import TaskCheckpoints
from ...engine.task.edges import EdgeWriter
from ...engine.task.replay import _Sharing
from ...engine.task.taking import Taking
from ...operators.io.sink import SinkOperator
from ...operators.letters import Letters
from ...state.timers import MemoryTimerQueue
from .case import Case
from .random_jobs import run_random
from .running_seeds import undisturbed

Mutation = tuple[type, str, Callable[[Any], Any]]
"""Whose method, its name, and what makes another one of it."""


def _no_alignment(original: Any) -> Any:
    def begin(self: BarrierAligner, channels: int, in_order: Any = (), holds: bool = True) -> None:
        original(self, channels, in_order, False)

    return begin


def _credit_doubled(original: Any) -> Any:
    def on_credit(self: SenderLedger, count: int) -> None:
        original(self, 2 * count if self.sent > 3 else count)

    return on_credit


def _commits_early(original: Any) -> Any:
    def prepare_snapshot(self: SinkOperator, checkpoint_id: CheckpointId) -> None:
        original(self, checkpoint_id)
        self.notify_checkpoint_complete(checkpoint_id)

    return prepare_snapshot


def _told_early(original: Any) -> Any:
    """The coordinator takes a checkpoint for complete though it was not stored."""

    def on_store_failed(self: JobMaster, n: CheckpointId, why: str, now_ms: int) -> Any:
        return self.on_stored(n, now_ms)

    return on_store_failed


def _one_user_less(original: Any) -> Any:
    def _needed(self: SharedFiles) -> set[str]:
        users = [self._users[n] for n in sorted(self._users)]
        return set().union(*(users[:-1] if len(users) > 1 else users))

    return _needed


def _everybodys(original: Any) -> Any:
    """Each subtask takes what was on its way to any."""

    def share(self: _Sharing, items: Iterable[Any]) -> Iterator[Any]:
        return iter(items)

    return share


def _nobodys(original: Any) -> Any:
    """What was on its way in a channel that was overtaken is forgotten."""

    def recorded(self: Taking, items: Mapping[int, Any]) -> None:
        original(self, dict.fromkeys(items, ()))

    return recorded


def _timer_lost(original: Any) -> Any:
    def restore(self: MemoryTimerQueue, tables: Any) -> None:
        original(self, tables)
        if self._waiting:
            timestamp = min(self._waiting)
            waiting = self._waiting[timestamp]
            key, namespace = next(iter(waiting)) if isinstance(waiting, dict) else waiting[:2]
            self.delete(timestamp, key, namespace)

    return restore


def _not_checked(original: Any) -> Any:
    """Whoever was taken for dead goes on as if nobody had begun another epoch."""

    def check(self: Tenure) -> None:
        """Nothing."""

    return check


def _late_counted(original: Any) -> Any:
    """What a task of an attempt that is over says counts as of this one."""

    def on_report(self: JobMaster, report: Any, now_ms: int) -> Any:
        attempt = self._numbers.of(report.task)
        return original(self, replace(report, attempt=attempt), now_ms)

    return on_report


def _given_up(original: Any) -> Any:
    """What could not be committed at once never is."""

    def _tries_later(self: SinkOperator, error: Exception, what: str, committables: Any) -> bool:
        again: bool = original(self, error, what, committables)
        if again and self._committing:
            del self._pending[0]
        return again

    return _tries_later


def _uncounted(original: Any) -> Any:
    """How many records were put aside is forgotten at a restart."""

    def _keep(self: Letters) -> None:
        self._state.update([])

    return _keep


def _not_written(original: Any) -> Any:
    """What was published goes with the coordinator that knew it."""

    def write(self: ResultLog, checkpoint: int) -> None:
        """Nothing."""

    return write


def _not_known(original: Any) -> Any:
    """Whoever stopped the job with a savepoint has taken that into its grave."""

    def on_stopped_before(self: CheckpointCoordinator, location: str | None) -> None:
        """Nothing."""

    return on_stopped_before


def _always_done(original: Any) -> Any:
    """A rescale that the load asked for counts as done, whatever became of it."""

    def on_failed(self: Steering, now_ms: int, why: str) -> Any:
        return self.on_rescaled(now_ms)

    return on_failed


def _torn(original: Any) -> Any:
    """A rescale stops what changes, and not what exchanges records with that."""

    def separable(self: Rescales) -> Part | None:
        part, one = original(self), self.now
        if part is None or one is None:
            return None
        before, after = one.former.job, one.graph.job
        changed = {v.id for v in after.vertices if v.parallelism != before.vertex(v.id).parallelism}
        tasks = tuple(task for task in part.starts.tasks if task.vertex in changed)
        sources = tuple(o for o in part.starts.sources if o in changed)
        stops = tuple(task for task in part.stops if task.vertex in changed)
        return Part(stops, Region(tasks, sources))

    return separable


def _goes_on_early(original: Any) -> Any:
    """A task that a rescale holds goes on as soon as its checkpoint is complete."""

    def on_completed(self: TaskCheckpoints, checkpoint_id: CheckpointId) -> None:
        original(self, checkpoint_id)
        self.held_at = None

    return on_completed


def _former_shares(original: Any) -> Any:
    """Who is wired anew sends to as many subtasks as before."""

    def rewire(self: EdgeWriter, channels: Any, d: Any) -> None:
        selector = self._selector
        original(self, channels, d)
        self._selector = selector

    return rewire


def _not_let_go(original: Any) -> Any:
    """A task that a rescale holds does not hear that it is to go on."""

    def go_on(self: TaskCheckpoints, checkpoint_id: CheckpointId) -> None:
        """Nothing."""

    return go_on


def _dealt_evenly(original: Any) -> Any:
    """Who sends by key takes each subtask to have as many key groups as the others."""

    def __init__(self: _ByKey, *arguments: Any, deal: Any = EVEN) -> None:
        original(self, *arguments)

    return __init__


def _always_as_before(original: Any) -> Any:
    """What was on its way goes by the number of subtasks, whatever their key groups are."""

    def _as_before(self: _Sharing, *arguments: Any) -> bool:
        return self._former == self._now

    return _as_before


def _never_left(original: Any) -> Any:
    """What a task of the coordinator before is refused is this one's end."""

    def is_left(self: AttemptNumbers, task: TaskId) -> bool:
        return False

    return is_left


def _nothing_shown(original: Any) -> Any:
    """Who goes on with writers takes over what they write to as if it did not."""

    def take(self: Outputs, origin: Any, epochs: Any, shown: Any = None) -> None:
        original(self, origin, epochs)

    return take


def _never_older(original: Any) -> Any:
    """A coordinator that was held up fences the one that has come since."""

    def is_older(self: Tenant, than: Tenant) -> bool:
        return False

    return is_older


MUTATIONS: Final[dict[str, Mutation]] = {
    "alignment dropped": (BarrierAligner, "__init__", _no_alignment),
    "a credit doubled": (SenderLedger, "on_credit", _credit_doubled),
    "commit before completion": (SinkOperator, "prepare_snapshot", _commits_early),
    "complete though not stored": (JobMaster, "on_store_failed", _told_early),
    "a reference count off by one": (SharedFiles, "_needed", _one_user_less),
    "channel state not filtered": (_Sharing, "share", _everybodys),
    "channel state forgotten": (Taking, "recorded", _nobodys),
    "a timer lost at restore": (MemoryTimerQueue, "restore", _timer_lost),
    "an epoch not checked": (Tenure, "check", _not_checked),
    "a late report counted": (JobMaster, "on_report", _late_counted),
    "a failed commit given up": (SinkOperator, "_tries_later", _given_up),
    "letters not counted": (Letters, "_keep", _uncounted),
    "results not written down": (ResultLog, "write", _not_written),
    "a stop forgotten": (CheckpointCoordinator, "on_stopped_before", _not_known),
    "a rescale taken for done": (Steering, "on_failed", _always_done),
    "a part torn from its region": (Rescales, "separable", _torn),
    "a held task goes on early": (TaskCheckpoints, "on_completed", _goes_on_early),
    "sent as before it was wired": (EdgeWriter, "rewire", _former_shares),
    "a held task left alone": (TaskCheckpoints, "go_on", _not_let_go),
    "sent as if dealt evenly": (_ByKey, "__init__", _dealt_evenly),
    "channel state by parallelism": (_Sharing, "_as_before", _always_as_before),
    "refused for another's sake": (AttemptNumbers, "is_left", _never_left),
    "nothing shown to a sink": (Outputs, "take", _nothing_shown),
    "whoever comes last is right": (Tenant, "is_older", _never_older),
}


KNOWN: Final[dict[str, str]] = {
    "alignment dropped": (
        "seed=4 job=pairs variant=11 records=16 parallelism=1 batch=1 interval=1 after=1 window=150"
    ),
    "a credit doubled": (
        "seed=5 job=sessions variant=5 records=16 parallelism=1 batch=5 interval=1 window=60 "
        "choices=0"
    ),
    "commit before completion": (
        "seed=0 job=sessions variant=5 records=2 parallelism=1 batch=5 interval=1 choices=0"
    ),
    "complete though not stored": (
        "seed=10 job=timers variant=7 parallelism=1 interval=1 retained=2 after=2 window=60 "
        "failing=60 figures=0"
    ),
    "a reference count off by one": (
        "seed=4 job=timers variant=7 parallelism=1 batch=2 interval=1 retained=3 window=60"
    ),
    "channel state not filtered": (
        "seed=0 job=sessions variant=11 parallelism=1,2 mode=unaligned interval=1 coordinators=1 "
        "window=150 figures=0"
    ),
    "channel state forgotten": (
        "seed=2 job=pairs variant=11 parallelism=1 batch=1 mode=unaligned interval=1 after=1 "
        "window=150 choices=100"
    ),
    "a timer lost at restore": (
        "seed=5 job=diamond records=2 parallelism=1 batch=5 cramped=1 interval=4 after=1 "
        "window=150 choices=100"
    ),
    "an epoch not checked": (
        "seed=7 job=running variant=2 parallelism=1 batch=1 interval=1 incremental=0 window=60 "
        "cut_offs=2 figures=0"
    ),
    "a late report counted": (
        "seed=2 job=diamond variant=9 batch=2 interval=1 stop=3 partitions=3 figures=0"
    ),
    "a failed commit given up": (
        "seed=0 job=stateless variant=9 records=2 parallelism=1 batch=5 interval=1 "
        "incremental=0 window=60 commits=300 figures=0"
    ),
    "letters not counted": (
        "seed=3 job=stateless variant=10 parallelism=1 stop=2 after=1 window=150 savepoints=1 "
        "refused=15 limit=short figures=0"
    ),
    "results not written down": (
        "seed=4 job=stateless variant=9 parallelism=1 batch=1 interval=1 coordinators=2 window=300 "
        "figures=0"
    ),
    "a part torn from its region": (
        "seed=6 job=islands variant=6 records=2 batch=1 mode=unaligned interval=1 window=60 "
        "figures=0 choices=30 live=2"
    ),
    "a held task goes on early": (
        "seed=5 job=stages variant=3 batch=1 interval=4 window=150 figures=0 live=3"
    ),
    "a held task left alone": (
        "seed=5 job=stages variant=3 batch=1 interval=4 window=150 figures=0 live=3 amid=3"
    ),
    "sent as before it was wired": (
        "seed=18 job=stages variant=7 batch=5 interval=4 window=150 figures=0 live=3"
    ),
    "a rescale taken for done": "seed=0 job=stateless crashes=3 after=2 window=150 own=4",
    "sent as if dealt evenly": (
        "seed=37 job=tumbling variant=5 batch=5 interval=1 incremental=0 storage=memory stop=3 "
        "crashes=2 coordinators=1 after=2 window=100 slow_work=1 figures=0 live=3 deals=100"
    ),
    "channel state by parallelism": (
        "seed=59 job=pairs variant=9 records=2 batch=8 cramped=1 mode=unaligned interval=4 "
        "window=60 figures=0 choices=0 live=3 deals=100"
    ),
    "refused for another's sake": (
        "seed=4 job=tumbling parallelism=2 interval=2 coordinators=2 figures=0 sink=blind"
    ),
    "nothing shown to a sink": (
        "seed=4 job=tumbling parallelism=2 interval=2 coordinators=2 figures=0 sink=counted"
    ),
    "whoever comes last is right": "seed=1 job=tumbling away=5 late=1 figures=0",
    "a stop forgotten": (
        "seed=7064 job=sessions variant=8 parallelism=2,3 batch=8 cramped=1 interval=4 at_once=3 "
        "full_every=1 ends=savepoint crashes=3 coordinators=1"
    ),
}
"""A case for each that found it, made short."""


@dataclass(frozen=True)
class Caught:
    """`tried`: so many cases found nothing before; `why`: what this one did."""

    tried: int
    case: Case
    why: str


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The engine broken in this way."""
    owner, method, make = MUTATIONS[name]
    original = owner.__dict__[method]
    setattr(owner, method, make(original))
    try:
        yield
    finally:
        setattr(owner, method, original)


def catch(name: str, cases: Iterable[Case]) -> Caught | None:
    """The first of the cases that finds the mutation; None: none does."""
    with mutated(name), undisturbed():
        for at, case in enumerate(cases):
            try:
                run_random(case)
            except (AssertionError, StromError) as error:
                return Caught(at, case, f"{type(error).__name__}: {error}")
    return None
