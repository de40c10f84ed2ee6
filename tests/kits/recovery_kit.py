"""A job whose tasks keep copies of their checkpoints, in the simulator, in front of a storage that
counts the data files which are read, and can refuse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from backends import TINY
from fsspec.implementations.memory import MemoryFileSystem
from shaky_storage import check_files
from strom import (
    KeyedProcessFunction,
    MapStateDescriptor,
    RuntimeContext,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.checkpoint.epochs import PREFIX as EPOCH
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.names import MANIFEST
from strom.connectors.datagen import DataGenSource
from strom.core.job_status import JobStatus
from strom.core.state_config import StateConfig
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.local_folder import copies_roots
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem
from strom.testing.probes import CollectProbe

COUNT, KEYS, HOT, STEP, SIZE = 900, 150, 10, 10, 2_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("time", pa.int64())])
STATES = {"memory": StateConfig(), "rocksdb": TINY}


def key_of(n: int) -> str:
    """All keys once, then a few of them again and again."""
    return f"k{n if n < KEYS else n * 7 % HOT}"


def generate(first: int, number: int) -> list[tuple[str, int, int]]:
    return [(key_of(n), n, n * STEP) for n in range(first, first + number)]


class Held(KeyedProcessFunction):
    """The values of a key, by their last digit."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_map_state(MapStateDescriptor("values"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        digit = value.value % 10
        self.values.put(digit, (self.values.get(digit) or 0) + value.value)
        yield ctx.get_current_key(), digit, self.values.get(digit)


def build(env: Any) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    keyed = env.from_source(source, strategy, "records").key_by("key")
    windows = keyed.window(TumblingEventTimeWindows.of(SIZE))
    return {
        "rolling": keyed.sum("value").map(tuple),
        "windows": windows.aggregate(n=count(), total=sum_("value")).map(tuple),
        "held": keyed.process(Held()),
    }


def expected() -> list[Any]:
    totals: dict[str, int] = {}
    held: dict[tuple[str, int], int] = {}
    windows: dict[tuple[str, int], list[int]] = {}
    found: list[Any] = []
    for key, n, time in generate(0, COUNT):
        totals[key] = totals.get(key, 0) + n
        found.append(("rolling", (key, totals[key], time)))
        held[key, n % 10] = held.get((key, n % 10), 0) + n
        found.append(("held", (key, n % 10, held[key, n % 10])))
        windows.setdefault((key, time // SIZE * SIZE), []).append(n)
    for (key, start), some in windows.items():
        found.append(("windows", (key, start, start + SIZE, len(some), sum(some))))
    return found


class Job:
    """A job whose checkpoints are in a storage that counts, and can refuse, reads of data files;
    its tasks keep copies below `folder`."""

    def __init__(self, folder: Path, state: str = "memory") -> None:
        self.dirs = (str(folder),)
        self.state = STATES[state]
        self.reads: list[str] = []
        self.refuses = False
        self.before: Callable[[str, str], None] = lambda call, path: None
        """Called before each call to the storage."""
        filesystem = FaultyFileSystem(MemoryFileSystem(), Faults(delay=self._on_call))
        self.filesystem = filesystem
        root = f"/recovery-{uuid4().hex}"
        self.storage = FileStorage(filesystem, root, uuid4().hex[:12], lambda seconds: None)
        self.results: list[SimulationResult] = []
        self.figures: dict[str, Any] = {}

    @property
    def copies(self) -> Path:
        return copies_roots(self.dirs)[0] / self.storage.job_id

    def _on_call(self, call: str, path: str) -> None:
        self.before(call, path)
        told = path.rpartition("/")[2]  # what coordinators read of each other is no data
        if call == "read" and told != MANIFEST and not told.startswith(EPOCH):
            self.reads.append(path)
            if self.refuses:
                raise PermissionError(f"{path} is read from the storage")

    def run(
        self,
        plan: SimulationPlan,
        parallelism: int = 2,
        finishes: bool = True,
        **checkpoint: Any,
    ) -> JobOutcome | None:
        """`finishes`: unless it is stopped."""
        told = {"local_recovery": True, "local_dirs": self.dirs, "retained": 2, **checkpoint}
        config = checkpointed(Ways(batch_size=16), parallelism)
        config = replace(config, state=self.state, checkpoint=replace(config.checkpoint, **told))
        self.probe = CollectProbe(build)
        result = Simulation(self.probe.graph(config), plan, self.storage).run()
        self.results.append(result)
        outcome = result.outcome
        if outcome is not None:
            assert not finishes or outcome.status is JobStatus.FINISHED, outcome.error
            self.figures = outcome.metrics["checkpoints"]
        return outcome

    def compare(self, reference: list[Any]) -> None:
        """All output is right."""
        seen: dict[Any, dict[str, Any]] = {}
        for result in self.results:
            for operator, values in result.published.items():
                seen.setdefault(operator, {}).update(values)
        published = {operator: list(values.values()) for operator, values in seen.items()}
        compare("from copies", reference, self.probe.output(published))

    def check(self, reference: list[Any]) -> None:
        """The same, and nothing is left."""
        self.compare(reference)
        self.refuses, self.before = False, lambda call, path: None
        check_files(self.storage)
        assert not self.copies.exists()
        assert list(self.copies.parent.iterdir()) == []

    def on_restart(self, do: Callable[[], None]) -> None:
        """Have this done whenever the coordinator is about to look for a checkpoint; it makes a
        listing of the job's folder only then."""

        def listed(call: str, path: str) -> None:
            if call == "list" and path == self.storage._home and self.copies.exists():
                do()

        self.before = listed

    def complete(self) -> list[int]:
        """The published checkpoints, without a call that counts."""
        inner, home = self.filesystem.inner, self.storage._home
        found = [path for path in inner.find(home) if path.endswith(MANIFEST)]
        return sorted(int(path.split("/")[-2].removeprefix("chk-")) for path in found)
