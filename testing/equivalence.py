"""The equivalence harness: one pipeline, run every way it may be run, gives one output.

    whole        local host, parallelism 1, no checkpoints            the reference
    checkpointed local host, parallelism 2, checkpoints all the time
    crashed      simulator, parallelism 2: a random task crashes after each of several checkpoints,
                 others at random steps, sometimes the coordinator and everything with it
    rescaled     simulator, parallelism 2, stopped after a checkpoint; its checkpoint continued at
                 3, or the savepoint that it was stopped with
    ray          Ray actors, parallelism 2, checkpoints (when asked for)

In the simulator every other seed runs with buffers so small that operators must park their work.
Three of four runs there keep checkpoints as files, which makes them incremental, and in the end no
shared file may be missing, and none left over; the others keep whole ones in memory. A third of
those with files keep copies of them on a local disk, and restart from these. State is in memory or
in RocksDB, and of rescaled runs some start with one and go on with the other (`backends`). Which
meets which depends on seed and pipeline (`Ways.mix`).

Outputs are compared as multisets: the order across parallel subtasks is nobody's promise. A harness
that never interrupts anything proves nothing, so it is an error if no seed's crash, or no seed's
stop, came while there was a checkpoint to go back to and input left to read.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..api.jobs.host import open_host
from ..checkpoint.storage import CheckpointStorage, open_storage
from ..core.config import CheckpointConfig, ExchangeConfig, ExponentialDelayRestart, JobConfig
from ..core.job_status import JobStatus
from ..core.state_config import StateConfig
from ..engine.hosts.driver import new_job_id
from ..engine.hosts.local_folder import LocalFolders, copies_roots, entered
from ..engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from .backends import IN_MEMORY, fast_dirs, state_of
from .probes import Build, BuildFiles, CollectProbe, FileProbe, Probe, seen_once

RESTART = ExponentialDelayRestart(initial=timedelta(milliseconds=20), maximum=timedelta(seconds=1))
WATERMARK_INTERVAL = timedelta(milliseconds=1)
"""Short, so that event time advances while a short pipeline runs, not only at its end."""

CRAMPED = ExchangeConfig(
    buffer_bytes=64, min_buffer_bytes=16, exclusive_buffers=1, floating_buffers=0
)
"""Buffers that every batch fills, so that operators park their work at each pause."""

NewProbe = Callable[[], AbstractContextManager[Probe]]
"""A probe for one run, with what it needs on disk."""


@dataclass(frozen=True)
class Ways:
    """How much of each way to run.

    crashes: tasks that crash right after a checkpoint; anytime: tasks that crash at random steps of
    the first `crash_window`; coordinator: with odd seeds the coordinator crashes once as well.
    local: run on the local host, checkpointed; off where the output depends on real time.
    insist: it is an error if nothing was interrupted; off for pipelines that are over at once.
    """

    seeds: Sequence[int] = range(3)
    crashes: int = 2
    anytime: int = 1
    coordinator: bool = True
    crash_window: int = 400
    checkpoint_interval: timedelta = timedelta(milliseconds=1)
    batch_size: int = 3
    local: bool = True
    ray: bool = False
    insist: bool = True
    state: StateConfig | None = None
    """Where all ways but the first keep their state, but for rescaled ones that start in memory, or
    go on there. None: in the simulator the seed says where, elsewhere it is in memory."""
    mix: int | None = None
    """Which backends and storages meet which crashes and restores, seed by seed. None: the number
    of records that come out, so that a few seeds of many pipelines are all combinations."""

    def storing(self, seed: int) -> int:
        """What says of a seed where state and checkpoints are."""
        return seed + (self.mix or 0)

    def in_files(self, seed: int) -> bool:
        """Whether checkpoints of the seed's runs are files."""
        return self.storing(seed) // 4 % 4 > 0

    def in_copies(self, seed: int) -> bool:
        """Whether tasks restart from copies of them."""
        return self.in_files(seed) and self.storing(seed) % 3 == 0


class Difference(AssertionError):
    """A way of running gave another output; the message names the way and what differs."""


class NothingProven(AssertionError):
    """All outputs agree, but no run was interrupted."""


def assert_equivalent(
    build: Build, expected: Iterable[Any] | None = None, ways: Ways | None = None
) -> list[Any]:
    """Run `build` every way; raises Difference or NothingProven. Returns the reference output.

    `expected`: what the output must be, when known independently of the engine. A build that
    returns several streams by name is compared as pairs of name and record.
    """
    return _assert_equivalent(lambda: nullcontext(CollectProbe(build)), expected, ways or Ways())


def assert_files_equivalent(
    build: BuildFiles,
    read: Callable[[Path], list[Any]],
    expected: Iterable[Any] | None = None,
    ways: Ways | None = None,
) -> list[Any]:
    """The same for sinks that write files: `build` writes into a folder, new for each run, and
    `read` gives the records that were committed there."""

    @contextmanager
    def new_probe() -> Iterator[Probe]:
        with tempfile.TemporaryDirectory(prefix="strom-files-") as folder:
            yield FileProbe(build, read, Path(folder))

    return _assert_equivalent(new_probe, expected, ways or Ways())


def _assert_equivalent(
    new_probe: NewProbe, expected: Iterable[Any] | None, ways: Ways
) -> list[Any]:
    reference = run_on_host(new_probe, JobConfig(auto_watermark_interval=WATERMARK_INTERVAL))
    if expected is not None:
        compare("whole, against the expected output", list(expected), reference)
    if ways.mix is None:
        ways = replace(ways, mix=len(reference))
    config = checkpointed(ways, 2)
    if ways.local:
        compare("local, checkpointed", reference, run_on_host(new_probe, config))
    crashed = rescaled = 0
    for seed in ways.seeds:
        output, midway = run_crashing(new_probe, config, ways, seed)
        compare(f"crashed, seed {seed}", reference, output)
        crashed += midway
        output, midway = run_rescaled(new_probe, ways, seed)
        compare(f"rescaled, seed {seed}", reference, output)
        rescaled += midway
    if ways.ray:
        compare("ray", reference, run_on_host(new_probe, config, host="ray"))
    if ways.insist and ways.seeds and not (crashed and rescaled):
        raise NothingProven(
            f"in {len(ways.seeds)} seeds, {crashed} crashes and {rescaled} stops came between a "
            "checkpoint and the end of the input: give the pipeline more records, smaller batches "
            "or more seeds"
        )
    return reference


def compare(way: str, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Raise Difference unless both are the same multiset."""
    want, got = Counter(map(_canonical, expected)), Counter(map(_canonical, found))
    if want == got:
        return
    missing, extra = list((want - got).elements()), list((got - want).elements())
    raise Difference(
        f"{way}: {len(found)} records, expected {len(expected)}; "
        f"{len(missing)} missing, for instance {sorted(missing)[:5]}; "
        f"{len(extra)} unexpected, for instance {sorted(extra)[:5]}"
    )


def run_local(build: Build, config: JobConfig, host: str = "local") -> list[Any]:
    """The output of `build` on a real host."""
    return run_on_host(lambda: nullcontext(CollectProbe(build)), config, host)


def run_on_host(new_probe: NewProbe, config: JobConfig, host: str = "local") -> list[Any]:
    """The output on a real host."""
    with new_probe() as probe:
        graph = probe.graph(config)
        client = open_host(host).submit(graph, graph.name)
        try:
            published = {op: list(client.published(op)) for op in probe.sinks.values()}
            client.get_job_execution_result()
        except BaseException:
            client.cancel()
            raise
        return probe.output(published)


def run_crashing(
    new_probe: NewProbe, config: JobConfig, ways: Ways, seed: int
) -> tuple[list[Any], int]:
    """The output in the simulator, and how many crashes came midway."""
    plan = SimulationPlan(
        seed=seed,
        crashes=ways.anytime,
        coordinator_crashes=int(ways.coordinator and seed % 2),
        crash_window=ways.crash_window,
        crash_after_checkpoints=ways.crashes,
    )
    config = copying(replace(config, state=_state(ways, seed)), ways, seed)
    with new_probe() as probe, _storage(files=ways.in_files(seed)) as storage:
        result = Simulation(probe.graph(cramped(config, seed)), plan, storage).run()
        _require_finished(result, f"crashed, seed {seed}")
        check_shared(f"crashed, seed {seed}", storage)
        check_copies(f"crashed, seed {seed}", storage, config)
        return probe.output(_published(result)), result.midway


def run_rescaled(new_probe: NewProbe, ways: Ways, seed: int) -> tuple[list[Any], int]:
    """Stop at parallelism 2 after the first, second or third checkpoint and go on at parallelism 3;
    and whether the stop came midway. If the job is over before, its output is that of the first
    part alone.

    With every third seed another job starts from the checkpoint's folder, with every third it is
    stopped with a savepoint, from which another job starts, and else the job itself goes on with
    its storage."""
    if seed % 3 == 1:
        return run_halted(new_probe, ways, seed)
    elsewhere = seed % 3 == 0
    with (
        new_probe() as probe,
        tempfile.TemporaryDirectory(prefix="strom-rescale-") as folder,
        _storage(files=ways.in_files(seed)) as own,
    ):
        storage = open_storage(folder, new_job_id()) if elsewhere else own
        goes_on: CheckpointStorage | None = storage
        plan = SimulationPlan(seed=seed, stop_after_checkpoint=1 + seed // 2 % 3)
        config = _rescaled(ways, seed, 1, 2)
        with _machine(config, storage):
            first = Simulation(probe.graph(config), plan, storage).run()
            if first.outcome is not None:
                _require_finished(first, f"before the rescale, seed {seed}")
                return probe.output(_published(first)), 0
            config = _rescaled(ways, seed, 2, 3)
            other = SimulationPlan(seed=seed)
            if elsewhere:
                point = Path(folder) / storage.job_id / f"chk-{first.last_checkpoint}"
                config, goes_on = replace(config, restore_from=str(point)), None
            second = Simulation(probe.graph(config), other, goes_on).run()
        _require_finished(second, f"rescaled, seed {seed}")
        check_shared(f"rescaled, seed {seed}", storage)
        check_copies(f"rescaled, seed {seed}", storage, config)
        return probe.output(_published(first, second)), first.midway


def run_halted(new_probe: NewProbe, ways: Ways, seed: int) -> tuple[list[Any], int]:
    """Stop at parallelism 2 with a savepoint, after another that does not stop it, and go on from
    it at parallelism 3; as `run_rescaled`."""
    with new_probe() as probe, tempfile.TemporaryDirectory(prefix="strom-savepoint-") as folder:
        plan = SimulationPlan(
            seed=seed,
            savepoints=1,
            crash_window=100,
            halt_after_checkpoint=1 + seed // 2 % 3,
            savepoint_directory=folder,
        )
        first = Simulation(probe.graph(_rescaled(ways, seed, 1, 2)), plan).run()
        _require_finished(first, f"with a savepoint, seed {seed}")
        if first.halted_at is None:
            return probe.output(_published(first)), 0
        config = replace(_rescaled(ways, seed, 2, 3), restore_from=first.halted_at)
        second = Simulation(probe.graph(config), SimulationPlan(seed=seed)).run()
        _require_finished(second, f"from the savepoint, seed {seed}")
        return probe.output(_published(first, second)), first.midway


@contextmanager
def _storage(files: bool) -> Iterator[CheckpointStorage]:
    """Of one job, in this process; as files, or as the coordinator keeps them."""
    if not files:
        yield open_storage(None, new_job_id())
        return
    import fsspec

    root = f"/strom-equivalence-{new_job_id()}"
    try:
        yield open_storage(f"memory:/{root}", new_job_id())
    finally:
        filesystem = fsspec.filesystem("memory")
        if filesystem.exists(root):
            filesystem.rm(root, recursive=True)


@contextmanager
def _machine(config: JobConfig, storage: CheckpointStorage) -> Iterator[None]:
    """Another process of the job is on the machine, and what tasks have copied there stays."""
    held = LocalFolders(storage.job_id, config.checkpoint.local_dirs)
    with entered(held if config.checkpoint.keeps_copies else None):
        yield


def check_copies(way: str, storage: CheckpointStorage, config: JobConfig) -> None:
    """Difference if a job that is over has copies on this machine."""
    for root in copies_roots(config.checkpoint.local_dirs):
        if (root / storage.job_id).exists():
            raise Difference(f"{way}: copies of its checkpoints are left in {root}")


def check_shared(way: str, storage: CheckpointStorage) -> None:
    """Difference unless the shared files are those that the checkpoints need, and are whole."""
    manifests = [storage.load(n) for n in storage.list()]
    needed = {name for manifest in manifests for name in manifest.shared}
    present = set(storage.list_shared())
    if present != needed:
        raise Difference(
            f"{way}: shared files missing: {sorted(needed - present)}, left over: "
            f"{sorted(present - needed)}"
        )
    for manifest in manifests:
        storage.verify(manifest)


def checkpointed(ways: Ways, parallelism: int) -> JobConfig:
    """The configuration of all ways but the first."""
    return JobConfig(
        parallelism=parallelism,
        batch_size=ways.batch_size,
        auto_watermark_interval=WATERMARK_INTERVAL,
        checkpoint=CheckpointConfig(
            interval=ways.checkpoint_interval, retained=2, tolerable_failures=100
        ),
        restart=RESTART,
        state=ways.state or IN_MEMORY,
    )


def copying(config: JobConfig, ways: Ways, seed: int) -> JobConfig:
    """The configuration, with copies for some seeds."""
    if not ways.in_copies(seed):
        return config
    told = replace(config.checkpoint, local_recovery=True, local_dirs=fast_dirs())
    return replace(config, checkpoint=told)


def _state(ways: Ways, seed: int, run: int = 0) -> StateConfig:
    drawn = state_of(ways.storing(seed), run)
    return drawn if ways.state is None or (run and drawn == IN_MEMORY) else ways.state


def _rescaled(ways: Ways, seed: int, run: int, parallelism: int) -> JobConfig:
    config = replace(checkpointed(ways, parallelism), state=_state(ways, seed, run))
    return cramped(copying(config, ways, seed), seed)


def cramped(config: JobConfig, seed: int) -> JobConfig:
    """The configuration, with the smallest buffers for every other seed."""
    return replace(config, exchange=CRAMPED) if seed % 2 == 0 else config


def _require_finished(result: SimulationResult, way: str) -> None:
    outcome = result.outcome
    if outcome is None or outcome.status is not JobStatus.FINISHED:
        raise Difference(f"{way}: the job did not finish: {outcome and outcome.error}")


def _published(*results: SimulationResult) -> dict[Any, list[Any]]:
    return seen_once(*(result.published for result in results))


def _canonical(value: Any) -> str:
    """Equal for equal values; a row, whatever its field names, is the tuple of its values."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return list(map(_plain, value)) if isinstance(value, list) else value
