"""One case, run: a life of the job after the other, and what came out of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from fsspec.implementations.memory import MemoryFileSystem

from ...checkpoint.attempts import AttemptPolicy
from ...checkpoint.file_storage import FileStorage
from ...checkpoint.storage import CheckpointStorage, MemoryStorage
from ...core.autoscaler_config import AutoscalerConfig
from ...core.checkpointing_mode import CheckpointingMode
from ...core.commit_config import CommitConfig
from ...core.config import CheckpointConfig, ExchangeConfig, ExponentialDelayRestart, JobConfig
from ...core.job_status import JobStatus
from ...engine.graph.model import JobGraph
from ...engine.hosts.job_outcome import JobOutcome
from ...engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from ..backends import IN_MEMORY, SPILLING
from ..equivalence import CRAMPED, Difference, check_shared
from ..faulty_filesystem import Faults, FaultyFileSystem
from ..probes import CollectProbe, seen_once
from .case import Case
from .invariants import LOST, Invariants, Violation, watching
from .partitions import Partitions
from .sinks import Outside, entered
from .storage import Failing, FilesInMemory

RESTART: Final = ExponentialDelayRestart(
    initial=timedelta(milliseconds=2), maximum=timedelta(milliseconds=20), jitter=0.0
)

TIMEOUT: Final = timedelta(milliseconds=40)
"""Of checkpoints; what hangs takes longer."""

HANG_MS: Final = 100

MORE_TASKS: Final = 3
"""So many times as long do both take where a rescale may bring more tasks than a case was made
for."""

COMMITS: Final = CommitConfig(
    retries=1_000, delay=timedelta(milliseconds=2), longest_delay=timedelta(milliseconds=8)
)

TOO_MANY: Final = "dead_letters(limit="
"""In the error of a job that has put more records aside than it may."""

SUPERSEDED: Final = ("was fenced", "any more by", "is published already", "exists: ")
"""In errors of a coordinator that was taken for dead, and of its tasks: others have begun."""

MOST_STEPS: Final = 60_000

ALIGNMENT: Final = timedelta(milliseconds=2)
"""How long a checkpoint is aligned that turns unaligned then."""

Check = Callable[[Case, list[Any]], None]
"""Raises what is wrong with the output of a case."""

MakeProbe = Callable[[Case, int], CollectProbe]
"""The pipeline of a case, and of one of its lives."""


@dataclass
class Ran:
    """What a case came to: `output`, the steps it took, and what happened to it."""

    output: list[Any] = field(default_factory=list)
    steps: int = 0
    crashed: int = 0
    coordinators: int = 0
    taken_over: int = 0
    midway: int = 0
    completed: int = 0
    failed_calls: int = 0
    verified: int = 0
    lives: int = 0
    cut_off: int = 0
    partitions: int = 0
    rescaled: int = 0
    rescaled_in_part: int = 0
    rescaled_holding: int = 0
    dealt: int = 0
    rescaled_itself: int = 0
    shrunk: int = 0
    grown: int = 0
    failed_commits: int = 0
    failed: str | None = None
    """Why the job failed that was to fail."""


def config_of(case: Case, parallelism: int) -> JobConfig:
    """The configuration of a life."""
    at_least_once = case.mode == "at_least_once"
    return JobConfig(
        parallelism=parallelism,
        max_parallelism=max(16, parallelism),
        batch_size=case.batch,
        auto_watermark_interval=timedelta(milliseconds=1),
        metrics_interval=timedelta(seconds=10),
        restart=RESTART,
        state=SPILLING[case.seed % len(SPILLING)] if case.backend == "rocksdb" else IN_MEMORY,
        checkpoint=CheckpointConfig(
            interval=timedelta(milliseconds=case.interval),
            timeout=TIMEOUT * _longer(case),
            tolerable_failures=1_000_000,
            retained=case.retained,
            max_concurrent=case.at_once,
            full_every=case.full_every,
            incremental=case.incremental,
            mode=(
                CheckpointingMode.AT_LEAST_ONCE if at_least_once else CheckpointingMode.EXACTLY_ONCE
            ),
            unaligned=case.mode in ("unaligned", "timeout"),
            alignment_timeout=ALIGNMENT if case.mode == "timeout" else timedelta(0),
        ),
        exchange=CRAMPED if case.cramped else ExchangeConfig(),
        commit=COMMITS,
        autoscaler=AutoscalerConfig(
            enabled=case.own > 0, interval=timedelta(milliseconds=case.looks)
        ),
    )


def _longer(case: Case) -> int:
    return MORE_TASKS if case.live or case.own or case.short else 1


def plan_of(case: Case, life: int, where: str) -> SimulationPlan:
    last = life == len(case.parallelism) - 1
    halts = not last and case.ends == "savepoint"
    return SimulationPlan(
        seed=case.seed * 8 + life,
        crashes=case.crashes,
        coordinator_crashes=case.coordinators if case.storage != "memory" else 0,
        crash_window=case.window,
        crash_after_checkpoints=case.after,
        savepoints=case.savepoints,
        rescales=case.live,
        deals=case.deals,
        own_rescales=case.own,
        shortages=case.short,
        amid=case.amid,
        at_stop=case.at_stop if halts else 0,
        savepoint_directory=where,
        stop_after_checkpoint=None if last or halts else case.stop,
        halt_after_checkpoint=case.stop if halts else None,
        slow_workers=case.slow_work,
        slow_writers=case.slow_work,
        hangs=case.hangs,
        hang_ms=HANG_MS * _longer(case),
        slow_tasks=case.slow_tasks,
        continues=life > 0,
        brisk=True,
        cut_offs=case.cut_offs if last and case.storage != "memory" else 0,
        away=case.away,
        run=life,
        late=case.late if last and case.storage != "memory" else 0,
        choices=case.choices,
        max_steps=MOST_STEPS,
    )


@contextmanager
def _storages(case: Case) -> Iterator[tuple[str, Callable[[str], CheckpointStorage]]]:
    """Where savepoints go, and what makes the storage of a job."""
    root = _root(case)
    filesystem = MemoryFileSystem()

    def make(job_id: str) -> CheckpointStorage:
        match case.storage:
            case "memory":
                return MemoryStorage(job_id)
            case "files":
                return FilesInMemory(job_id)
        return FileStorage(filesystem, root, job_id, pause=_at_once)

    try:
        yield f"memory:/{root}", make
    finally:
        if filesystem.exists(root):
            filesystem.rm(root, recursive=True)


class _Failures(Protocol):
    """`failed`: how many calls did. `left_over`: whether one did that would have removed files."""

    failed: int

    @property
    def left_over(self) -> bool: ...


class _FileFailures(Faults):
    """Of a filesystem, which is not told what is removed for good."""

    @property
    def left_over(self) -> bool:
        return self.failed > 0


def _disturbed(
    case: Case, storage: CheckpointStorage, seed: int
) -> tuple[CheckpointStorage, _Failures]:
    """What the job is to use of `storage`, and what fails there."""
    if not (case.failing and isinstance(storage, FileStorage)):
        failing = Failing(storage, seed, case.failing)
        return failing if case.failing else storage, failing
    faults = _FileFailures(seed, case.failing / 1000)
    filesystem, root = MemoryFileSystem(), _root(case)
    faulty = FaultyFileSystem(filesystem, faults)
    policy = AttemptPolicy(most=2)
    used = FileStorage(faulty, root, storage.job_id, _at_once, policy)
    used.home = storage.home  # where others find it, who have no trouble
    return used, faults


def _root(case: Case) -> str:
    return f"/strom-simulation-{case.seed}"


def _at_once(seconds: float) -> None:
    """No pause between attempts: the clock is not the storage's."""


def run(case: Case, probe: CollectProbe, graph_of: Callable[[JobConfig], JobGraph]) -> Ran:
    """The lives of a case; raises what went wrong. `graph_of`: the graph of the probe's pipeline
    with a configuration."""
    invariants, outside = Invariants(_asked(case)), Outside(case.seed, case.commits)
    with (
        _storages(case) as (where, make),
        watching(invariants, outside, case),
        entered(outside),
    ):
        return _Lives(case, where, make, invariants, outside, graph_of).run(probe)


def _asked(case: Case) -> tuple[str, ...]:
    """What the case may have go wrong, of what the simulation does not raise itself."""
    too_many = (TOO_MANY,) if case.limit == "short" else ()
    return too_many + (SUPERSEDED if case.cut_offs or case.late or case.sink == "blind" else ())


class _Lives:
    def __init__(
        self,
        case: Case,
        where: str,
        make: Callable[[str], CheckpointStorage],
        invariants: Invariants,
        outside: Outside,
        graph_of: Callable[[JobConfig], JobGraph],
    ) -> None:
        self._case = case
        self._where = where
        self._make = make
        self._invariants = invariants
        self._outside = outside
        self._graph_of = graph_of
        self._results: list[SimulationResult] = []
        self._ran = Ran()

    def run(self, probe: CollectProbe) -> Ran:
        case, ran = self._case, self._ran
        storage, restore_from = self._make("job-0"), None
        for life, parallelism in enumerate(case.parallelism):
            config = replace(config_of(case, parallelism), restore_from=restore_from)
            result = self._live(life, config, storage)
            stopped_with = result.halted_at
            if stopped_with != self._invariants.stopped_with:
                raise Violation(
                    f"life {life} was stopped with {self._invariants.stopped_with}, and who asked "
                    f"for it was told of {stopped_with}"
                )
            if result.outcome is not None and (stopped_with is None or ran.failed):
                break
            if life == len(case.parallelism) - 1:
                raise Violation("the last life was stopped")
            match case.ends:
                case "savepoint":
                    restore_from, storage = stopped_with, self._make(f"job-{life + 1}")
                case "checkpoint" if case.storage == "objects":
                    point = f"{self._where}/{storage.job_id}/chk-{result.last_checkpoint}"
                    restore_from, storage = point, self._make(f"job-{life + 1}")
        collected = seen_once(*(one.published for one in self._results))
        ran.output = probe.output({**collected, **self._outside.output()})
        ran.lives = len(self._results)
        ran.verified = self._invariants.verified
        ran.failed_commits = self._outside.failed
        return ran

    def _live(self, life: int, config: JobConfig, storage: CheckpointStorage) -> SimulationResult:
        case, ran = self._case, self._ran
        used, failing = _disturbed(case, storage, case.seed * 8 + life)
        partitions = Partitions(case.seed * 8 + life, case.partitions, case.window, LOST)
        self._invariants.begin(storage, partitions)
        self._outside.begin()
        plan = plan_of(case, life, self._where)
        simulation = Simulation(self._graph_of(config), plan, used, self._invariants)
        try:
            result = simulation.run()
        finally:
            partitions.close()
        self._results.append(result)
        ran.steps += result.steps
        ran.crashed += result.crashed
        ran.coordinators += result.coordinators_crashed
        ran.taken_over += result.taken_over
        ran.midway += result.midway
        ran.completed += result.last_checkpoint or 0
        ran.failed_calls += failing.failed
        ran.cut_off += len(result.cut_off)
        ran.partitions += partitions.made
        ran.rescaled += result.rescaled
        ran.rescaled_in_part += result.rescaled_in_part
        ran.rescaled_holding += result.rescaled_holding
        ran.dealt += result.dealt
        ran.rescaled_itself += result.rescaled_itself
        ran.shrunk += result.shrunk
        ran.grown += result.grown
        if result.outcome is not None:
            self._look_at_outcome(f"life {life}", result.outcome, result.cut_off)
            orphaned = failing.left_over or partitions.zombies or result.cut_off or result.late
            check_left(f"life {life}", storage, bool(orphaned or result.hanging))
        return result

    def _look_at_outcome(self, life: str, outcome: JobOutcome, others: list[JobOutcome]) -> None:
        """One of those that ran the job has finished it, and the others say that they were not to;
        or it failed as it had to."""
        errors = [str(o.error) for o in (outcome, *others) if o.status is not JobStatus.FINISHED]
        if self._case.limit == "short" and any(TOO_MANY in error for error in errors):
            self._ran.failed = errors[0]
        elif len(errors) > len(others):
            raise Violation(f"{life}: the job did not finish: {'; '.join(errors)}")
        elif wrong := [e for e in errors if not any(why in e for why in SUPERSEDED)]:
            raise Violation(f"{life}: a coordinator that was taken for dead failed: {wrong}")


def check_left(way: str, storage: CheckpointStorage, more: bool) -> None:
    """What a job that is over has in its storage. `more`: files may be left that could not be
    removed, or whose publication hung when the job ended; of a checkpoint that does not count
    perhaps only some."""
    if more:
        for n in storage.list():
            try:
                manifest = storage.load(n)
                storage.check_counts(manifest)
            except Exception:  # what is left of one that never completed, or counts for nobody
                continue
            storage.verify(manifest)
        return
    if isinstance(storage, FilesInMemory):
        needed = {
            (n, handle.path)
            for n in storage.published
            for handle in storage.load(n).files()
            if not handle.shared and handle.inline is None
        }
        extra, missing = (
            sorted(storage.files.keys() - needed),
            sorted(needed - storage.files.keys()),
        )
        if extra or missing:
            raise Difference(f"{way}: files of checkpoints left over: {extra}, missing: {missing}")
    check_shared(way, storage)
