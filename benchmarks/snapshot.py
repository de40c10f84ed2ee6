"""How long a snapshot holds up a task, for every kind of state.

A harness holds one operator and is given a record of each key. Then, several times: a small batch
(`batch_ms`), the snapshot as a task takes it, which is the synchronous part (`sync_ms`), another
small batch while the snapshot is held (what it takes longer than the first is `after_ms`: a copy
that was put off), and the rest, the tables encoded and written to files as a checkpoint's.

Each state is measured in a process of its own: memory that one leaves behind is not the next one's.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from strom import ColumnBatch
from strom.checkpoint.snapshot_io import write_subtask
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.ids import CheckpointId, TaskId, VertexId
from strom.testing import OperatorHarness

from .apart import Broken, apart
from .configured import backend, job_config
from .states import STATES, State, records

BLOCK = 16_384
SMALL = 1_000
"""Records of the batches before and after a snapshot."""

WARM_UP = 5_000
"""Keys of a first, unmeasured pass, which loads what is loaded late."""

MS_PER_MILLION = 10.0
MOST_MS = 60.0
LEAST_MS = 2.0
"""The promise for numbers: so much per million keys, never more than MOST_MS up to ten million;
LEAST_MS is allowed whatever the number, for the calls."""


def limit_ms(keys: int) -> float:
    """How long the task may stand still for a snapshot of so many keys."""
    return min(max(keys / 1e6 * MS_PER_MILLION, LEAST_MS), MOST_MS)


@dataclass(frozen=True)
class Round:
    """One snapshot, in ms, and the bytes written."""

    batch: float
    sync: float
    sync_cpu: float
    """Of the thread: on a busy machine `sync` is waiting, too."""
    after: float
    rest: float
    written: int


class Filled:
    """An operator with a record of each of `keys` keys, on each of its state's ports."""

    def __init__(self, state: State, keys: int, storage: CheckpointStorage) -> None:
        self._state = state
        self._keys = keys
        self._storage = storage
        self._checkpoint = 0
        self._touched = np.random.default_rng(7)
        self._harness = OperatorHarness.of(state.stream(), config=job_config())
        for port in state.ports:
            for start in range(0, keys, BLOCK):
                self._push(records(start, min(BLOCK, keys - start)), port)
        for port in state.ended:
            self._harness.end_input(port)
            self._harness.output.elements.clear()

    def _push(self, data: pa.RecordBatch, port: int) -> None:
        times = data.column("t").to_numpy()
        self._harness.push(ColumnBatch(data, times), port=port)
        self._harness.output.elements.clear()

    def _batch(self) -> pa.RecordBatch:
        """Known keys, drawn at random."""
        at = np.sort(self._touched.integers(0, self._keys, SMALL))
        return pa.concat_batches([records(int(n), 1) for n in at])

    def _small_batches(self) -> Callable[[], None]:
        ports = [port for port in (0, *self._state.ports) if port not in self._state.ended]
        made = [(self._batch(), port) for port in dict.fromkeys(ports)]

        def push() -> None:
            for data, port in made:
                self._push(data, port)

        return push

    def round(self) -> Round:
        """As a task does it: `engine/task/checkpointing`."""
        harness = self._harness
        self._checkpoint += 1
        number = CheckpointId(self._checkpoint)
        first, before, behind = (self._small_batches() for _ in range(3))
        first()  # caches are cold from what was written
        batch, _ = timed(before)
        used = time.thread_time()
        sync, parts = timed(lambda: self._frozen(number))
        sync_cpu = (time.thread_time() - used) * 1e3
        after, _ = timed(behind)
        task = TaskId(VertexId("operator"), harness.context.subtask)
        rest, written = timed(lambda: write_subtask(self._storage, number, task, [parts]))
        handles = [file for operator in written.operators for file in operator.files]
        self._storage.delete(number)
        return Round(batch, sync, sync_cpu, after, rest, sum(file.size for file in handles))

    def _frozen(self, number: CheckpointId) -> Any:
        harness = self._harness
        harness.operator.prepare_snapshot(number)
        keyed, operator = harness.keyed_state.snapshot(), harness.operator_state.snapshot()
        return harness.context.operator_id, keyed, operator

    def close(self) -> None:
        self._harness.close()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and the result."""
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e3, result


def measure_state(name: str, keys: int, rounds: int) -> dict[str, Any]:
    """The line of one kind of state, measured in this process."""
    state = STATES[name]
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        storage = open_storage(folder, "snapshot")
        for count, times in ((min(keys, WARM_UP), 1), (keys, rounds)):
            filled = Filled(state, count, storage)
            found = [filled.round() for _ in range(times)]
            filled.close()
            del filled
    line = {"name": "snapshot", "state": name, "backend": backend(), "keys": keys}
    return {**line, **summary(state, keys, found)}


def summary(state: State, keys: int, rounds: list[Round]) -> dict[str, Any]:
    """Medians and what they are held against; null for state of Python objects."""
    sync = statistics.median(one.sync for one in rounds)
    batch = statistics.median(one.batch for one in rounds)
    after = max(statistics.median(one.after for one in rounds) - batch, 0.0)
    limit = limit_ms(keys) if state.numeric else None
    return {
        "sync_ms": round(sync, 2),
        "sync_worst_ms": round(max(one.sync for one in rounds), 2),
        "sync_cpu_ms": round(statistics.median(one.sync_cpu for one in rounds), 2),
        "after_ms": round(after, 2),
        "batch_ms": round(batch, 2),
        "total_ms": round(statistics.median(one.sync + one.rest for one in rounds), 1),
        "bytes": rounds[-1].written,
        "limit_ms": limit,
        "within": None if limit is None else sync + after <= limit,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "rounds": len(rounds),
    }


def measure_states(names: list[str], keys: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A line for each, measured in a process of its own; one that broke says how."""
    for name in names:
        try:
            yield apart(measure_state, name, keys, rounds)
        except Broken as error:
            yield {"name": "snapshot", "state": name, "keys": keys, "error": str(error)}
