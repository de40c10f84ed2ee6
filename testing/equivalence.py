"""The equivalence harness: one pipeline, run every way it may be run, gives one output.

    whole        local host, parallelism 1, no checkpoints            the reference
    checkpointed local host, parallelism 2, checkpoints all the time
    interrupted  simulator, parallelism 2, stopped after a checkpoint; its checkpoint, or the
                 savepoint that it was stopped with, continued at 3. In both jobs random tasks crash
                 after checkpoints and at random steps, in the second one sometimes the coordinator
                 and everything with it
    ray          Ray actors, parallelism 2, checkpoints (when asked for)

In the simulator every other seed runs with buffers so small that operators must park their work.
Three of four runs there keep checkpoints as files, which makes them incremental, and in the end no
shared file may be missing, and none left over; the others keep whole ones in memory. A third of
those with files keep copies of them on a local disk, and restart from these. State is in memory or
in RocksDB, and some runs start with one and go on with the other (`backends`). Which meets which
depends on seed and pipeline (`Ways.mix`).

Outputs are compared as multisets: the order across parallel subtasks is nobody's promise. A harness
that never interrupts anything proves nothing: as long as no seed's crash, or no seed's stop, came
while there was a checkpoint to go back to and input left to read, a few more seeds are run, and
then it is an error.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ..api.jobs.host import open_host
from ..checkpoint.manifest import Manifest
from ..checkpoint.storage import CheckpointStorage, open_storage
from ..core.config import JobConfig
from ..core.errors import MissingCheckpointError
from ..core.job_status import JobStatus
from ..engine.hosts.driver import new_job_id
from ..engine.hosts.local_folder import LocalFolders, copies_roots, entered
from ..engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from .backends import fast_dirs
from .probes import Build, BuildFiles, CollectProbe, FileProbe, Probe, seen_once
from .ways import (
    CRAMPED,
    RESTART,
    WATERMARK_INTERVAL,
    Ways,
    checkpointed,
    copying,
    cramped,
    mixed,
    resumed,
    state_of_run,
)

__all__ = [
    "CRAMPED",
    "RESTART",
    "WATERMARK_INTERVAL",
    "Difference",
    "NothingProven",
    "Ways",
    "assert_equivalent",
    "assert_files_equivalent",
    "check_copies",
    "check_shared",
    "checkpointed",
    "compare",
    "copying",
    "cramped",
    "run_crashing",
    "run_interrupted",
    "run_local",
    "run_on_host",
]

NewProbe = Callable[[], AbstractContextManager[Probe]]
"""A probe for one run, with what it needs on disk."""


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
        with _folder("strom-files-") as folder:
            yield FileProbe(build, read, Path(folder))

    return _assert_equivalent(new_probe, expected, ways or Ways())


def _assert_equivalent(
    new_probe: NewProbe, expected: Iterable[Any] | None, ways: Ways
) -> list[Any]:
    reference = run_on_host(new_probe, JobConfig(auto_watermark_interval=WATERMARK_INTERVAL))
    if expected is not None:
        compare("whole, against the expected output", list(expected), reference)
    if ways.mix is None:
        ways = replace(ways, mix=mixed(ways.seeds, len(reference)))
    config = checkpointed(ways, 2)
    if ways.local:
        compare("local, checkpointed", reference, run_on_host(new_probe, config))
    crashed = stopped = dealt = tried = 0
    for seed in chain(ways.seeds, ways.spares()):
        if tried >= len(ways.seeds) and crashed and stopped and dealt >= min(ways.deals, 1):
            break
        output, midway = run_interrupted(new_probe, ways, seed)
        compare(f"interrupted, seed {seed}", reference, output)
        crashed += midway.crashes
        stopped += midway.stops
        dealt += midway.dealt
        tried += 1
    if ways.ray:
        compare("ray", reference, run_on_host(new_probe, config, host="ray"))
    if ways.insist and ways.seeds and not (crashed and stopped):
        raise NothingProven(
            f"in {tried} seeds, {crashed} crashes and {stopped} stops came between a "
            "checkpoint and the end of the input: give the pipeline more records, smaller batches "
            "or more seeds"
        )
    if ways.insist and ways.seeds and ways.deals and not dealt:
        raise NothingProven(f"in {tried} seeds, key groups were never dealt unevenly")
    return reference


def compare(way: str, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Raise Difference unless both are the same multiset."""
    want, got = Counter(map(canonical, expected)), Counter(map(canonical, found))
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
    config = copying(replace(config, state=state_of_run(ways, seed)), ways, seed)
    with new_probe() as probe, _storage(files=ways.in_files(seed)) as storage:
        result = Simulation(probe.graph(cramped(config, seed)), plan, storage).run()
        _require_finished(result, f"crashed, seed {seed}")
        check_shared(f"crashed, seed {seed}", storage)
        check_copies(f"crashed, seed {seed}", storage, config)
        return probe.output(_published(result)), result.midway


@dataclass(frozen=True)
class Midway:
    """How many crashes and stops came while there was a checkpoint to go back to and input left;
    `dealt`: how many times key groups were dealt unevenly, and the job went on."""

    crashes: int
    stops: int
    dealt: int = 0


def run_interrupted(new_probe: NewProbe, ways: Ways, seed: int) -> tuple[list[Any], Midway]:
    """Stop at parallelism 2 after the first, second or third checkpoint and go on at parallelism 3,
    with crashes in both jobs. If the job is over before, its output is that of the first alone.

    By turns another job starts from the checkpoint's folder, the job is stopped with a
    savepoint (after another that does not stop it), from which another job starts, or the job
    itself goes on with its storage."""
    way, turn = f"interrupted, seed {seed}", ways.turn(seed) % 3
    elsewhere, halted, itself = turn == 0, turn == 1, turn == 2
    with (
        new_probe() as probe,
        _folder("strom-interrupted-") as folder,
        _storage(files=ways.in_files(seed)) as own,
        _storage(files=ways.in_files(seed)) as others,
    ):
        storage = open_storage(folder, new_job_id()) if elsewhere else own
        config = resumed(ways, seed, 1, 2)
        early, late = _plans(ways, seed, folder)
        with _machine(config, storage):
            first = Simulation(probe.graph(config), early, storage).run()
            over = first.halted_at is None if halted else first.outcome is not None
            if over or halted:
                _require_finished(first, f"{way}, before it was stopped")
            if over:
                return probe.output(_published(first)), Midway(first.midway, 0, first.dealt)
            config = resumed(ways, seed, 2, 3)
            if not itself:
                point = Path(folder) / storage.job_id / f"chk-{first.last_checkpoint}"
                config = replace(
                    config,
                    restore_from=first.halted_at or str(point),
                    allow_unmatched_state=ways.mixed_keys,
                )
            goes_on = storage if itself else others
            second = Simulation(probe.graph(config), late, goes_on).run()
        _require_finished(second, way)
        for used in {id(one): one for one in (storage, goes_on)}.values():
            check_shared(way, used, killed=elsewhere and used is storage)
            check_copies(way, used, config)
        stops = int(first.stopped_midway)
        crashes = first.midway - stops + second.midway
        dealt = first.dealt + second.dealt
        return probe.output(_published(first, second)), Midway(crashes, stops, dealt)


def _plans(ways: Ways, seed: int, folder: str) -> tuple[SimulationPlan, SimulationPlan]:
    """Of the job that is stopped, and of the one that goes on. Tasks crash after checkpoints in the
    first one as long as it is not stopped, and at random steps of the second one; at odd turns at
    random steps of the first one, too, and then the coordinator of the second one crashes."""
    turn = ways.turn(seed)
    stop = 1 + seed // 2 % 3
    crashes = min(ways.crashes, stop - 1)
    halts = turn % 3 == 1
    early = SimulationPlan(
        seed=seed,
        crashes=ways.anytime if turn % 2 else 0,
        crash_window=min(ways.crash_window, 100),
        crash_after_checkpoints=crashes,
        savepoints=int(halts),
        savepoint_directory=folder,
        stop_after_checkpoint=None if halts else stop,
        halt_after_checkpoint=stop if halts else None,
        rescales=ways.rescales + ways.deals,
        amid=ways.rescales // 2,
        deals=100 * ways.deals // max(1, ways.rescales + ways.deals),
    )
    late = SimulationPlan(
        seed=seed,
        crashes=ways.anytime,
        coordinator_crashes=int(ways.coordinator and turn % 2),
        crash_window=ways.crash_window,
        crash_after_checkpoints=ways.crashes - crashes,
        continues=True,
        rescales=ways.rescales + ways.deals,
        amid=ways.rescales // 2,
        deals=100 * ways.deals // max(1, ways.rescales + ways.deals),
    )
    return early, late


def _folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """In memory, if there is such a place: nothing here outlives the machine."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=next(iter(fast_dirs()), None))


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


def check_shared(way: str, storage: CheckpointStorage, killed: bool = False) -> None:
    """Difference unless the shared files are those that the checkpoints need, and are whole. A job
    that was `killed` leaves what it had written of those that were not complete."""
    manifests: list[Manifest] = []
    for n in storage.list():
        try:
            manifests.append(storage.load(n))
        except MissingCheckpointError:
            if not killed:
                raise
    needed = {name for manifest in manifests for name in manifest.shared}
    present = set(storage.list_shared())
    if killed:
        present &= needed
    if present != needed:
        raise Difference(
            f"{way}: shared files missing: {sorted(needed - present)}, left over: "
            f"{sorted(present - needed)}"
        )
    for manifest in manifests:
        storage.verify(manifest)


def _require_finished(result: SimulationResult, way: str) -> None:
    outcome = result.outcome
    if outcome is None or outcome.status is not JobStatus.FINISHED:
        raise Difference(f"{way}: the job did not finish: {outcome and outcome.error}")


def _published(*results: SimulationResult) -> dict[Any, list[Any]]:
    return seen_once(*(result.published for result in results))


def canonical(value: Any) -> str:
    """Equal for equal values; a row, whatever its field names, is the tuple of its values."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return list(map(_plain, value)) if isinstance(value, list) else value
