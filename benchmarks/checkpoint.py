"""What checkpoints cost: one of one task, by how much of its state changed, and a job's throughput.

A harness holds a rolling sum with a value per key. After a whole checkpoint a share of the keys,
drawn at random, is written, then a checkpoint is taken as a task takes it, and completes; several
times. `sync_ms` is how long the task stands still, `total_ms` that and encoding and writing files
beside it, `new_bytes` what was written, `all_bytes` what the checkpoint consists of. `full`: the
same with `incremental=False`. Each line is measured in a process of its own.

`throughput`: a whole job that keeps such sums of uniform keys, in turns without checkpoints and
with one every second; `loss` is what the latter does less.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from strom import ColumnBatch, DataStream, StreamExecutionEnvironment
from strom.checkpoint.increments import Increments
from strom.checkpoint.snapshot_io import write_subtask
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.connectors.datagen import DataGenSource
from strom.core.ids import CheckpointId, TaskId, VertexId
from strom.testing import OperatorHarness

from .apart import Broken, apart
from .configured import BACKEND, configured, job_config
from .measure import Setting, measured
from .snapshot import BLOCK, limit_ms, timed
from .states import STATES, records
from .streams import KEY_VALUE, mix, numbers

STATE = "running_sum"
BACKENDS = ("memory", "rocksdb")
EVENTS = {"memory": 100_000_000, "rocksdb": 15_000_000}
"""Of the jobs, by backend: so many as take ten seconds or more."""


class Changing:
    """An operator with a number of keys, of which some change between its checkpoints."""

    def __init__(self, keys: int, storage: CheckpointStorage, incremental: bool) -> None:
        self._keys = keys
        self._storage = storage
        self._incremental = incremental
        self._increments = Increments()
        self._n = 0
        self._rng = np.random.default_rng(7)
        self._harness = OperatorHarness.of(STATES[STATE].stream(), config=job_config())
        for start in range(0, keys, BLOCK):
            self._push(records(start, min(BLOCK, keys - start)))

    def _push(self, data: pa.RecordBatch) -> None:
        self._harness.push(ColumnBatch(data, data.column("t").to_numpy()))
        self._harness.output.elements.clear()

    def change(self, share: float) -> None:
        """Write this share of the keys."""
        chosen = self._rng.permutation(self._keys)[: max(1, round(share * self._keys))]
        for start in range(0, len(chosen), BLOCK):
            numbers = chosen[start : start + BLOCK]
            keys = mix(numbers.astype(np.uint64)).view(np.int64)
            columns = [pa.array(keys), pa.array(keys & 1023), pa.array(numbers)]
            self._push(pa.RecordBatch.from_arrays(columns, names=["k", "v", "t"]))

    def checkpoint(self) -> dict[str, float]:
        """One, which completes: as `engine/task/checkpointing` takes it."""
        self._n += 1
        n = CheckpointId(self._n)
        harness = self._harness
        operator = harness.context.operator_id
        increment = self._increments.begin(n, CheckpointId(self._n - 1))

        def freeze() -> Any:
            harness.operator.prepare_snapshot(n)
            since = increment.since(operator) if self._incremental else None
            return operator, harness.keyed_state.snapshot(since), harness.operator_state.snapshot()

        def write() -> Any:
            task = TaskId(VertexId("operator"), harness.context.subtask)
            layers = increment.layers if self._incremental else None
            files = increment.files if self._incremental else None
            return write_subtask(self._storage, n, task, [part], layers=layers, files=files)

        sync, part = timed(freeze)
        rest, written = timed(write)
        if self._incremental:
            self._increments.written(n, written)
        files = [file for found in written.operators for file in found.files]
        new = [file for file in files if not file.shared or file.path.startswith(f"{n}-")]
        return {
            "sync_ms": sync,
            "total_ms": sync + rest,
            "new_bytes": sum(file.size for file in new),
            "all_bytes": sum(file.size for file in files),
            "files": len(files),
        }

    def close(self) -> None:
        self._harness.close()


def measure_share(keys: int, share: float, rounds: int, incremental: bool) -> dict[str, Any]:
    """The line of one share, measured in this process: medians of the rounds."""
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        changing = Changing(keys, open_storage(folder, "checkpoint"), incremental)
        base = changing.checkpoint()
        found = []
        for _ in range(rounds):
            changing.change(share)
            found.append(changing.checkpoint())
        changing.close()
    line: dict[str, Any] = {
        "name": "checkpoint",
        "backend": job_config().state.backend,
        "kind": "incremental" if incremental else "full",
        "keys": keys,
        "changed": share,
    }
    line |= {name: round(statistics.median(one[name] for one in found), 2) for name in base}
    line["of_all_bytes"] = round(line["new_bytes"] / line["all_bytes"], 4)
    line["of_base_bytes"] = round(line["new_bytes"] / base["new_bytes"], 4)
    line["limit_ms"] = limit_ms(keys)
    line["within"] = line["sync_ms"] <= line["limit_ms"]
    return line


def measure_checkpoints(
    keys: Sequence[int], shares: Sequence[float], rounds: int, backends: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A line for each backend, number of keys and share, incremental and full, each in a process of
    its own; one that broke says how."""
    for backend, number, share, incremental in product(backends, keys, shares, (True, False)):
        line = {"name": "checkpoint", "backend": backend, "keys": number, "changed": share}
        with configured({BACKEND: backend}):
            try:
                line |= apart(measure_share, number, share, rounds, incremental)
            except Broken as error:
                line["error"] = str(error)
        yield line


def sums(keys: int, events: int, env: StreamExecutionEnvironment) -> DataStream:
    """Running sums of uniform keys, every update emitted."""
    source = DataGenSource(partial(uniform, keys), events, schema=KEY_VALUE, block=BLOCK)
    return env.from_source(source, source_name="pairs").key_by("k").sum("v")


def uniform(keys: int, start: int, count: int) -> pa.RecordBatch:
    random = mix(numbers(start, count))
    columns = [random % np.uint64(keys), (random >> np.uint64(40)) % np.uint64(100)]
    arrays = [pa.array(column.astype(np.int64)) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=KEY_VALUE)


def measure_throughput(
    keys: int, backend: str, events: int | None, runs: int, parallelism: int, host: str
) -> dict[str, Any]:
    """The line of a job with so many keys: medians of its runs without and with checkpoints."""
    number = events or EVENTS[backend]
    without = Setting("checkpoint", number, parallelism, host)
    rates: dict[bool, list[int]] = {False: [], True: []}
    with configured({BACKEND: backend}):
        for _ in range(runs):
            for every in (False, True):
                setting = replace(without, checkpoint_interval=1.0) if every else without
                run = measured(setting, partial(sums, keys, number))
                rates[every].append(run.events_per_s)
    alone, beside = (round(statistics.median(rates[every])) for every in (False, True))
    return {
        "name": "checkpoint",
        "kind": "throughput",
        "backend": backend,
        "keys": keys,
        "events": number,
        "events_per_s": beside,
        "events_per_s_without": alone,
        "loss": round(1 - beside / alone, 3),
        "checkpoints": run.checkpoints,
        "checkpoint_ms": run.checkpoint_ms,
        "runs": rates[True],
        "runs_without": rates[False],
        "parallelism": parallelism,
        "host": host,
    }
