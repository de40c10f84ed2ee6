"""`statesize`: reads and writes of keyed state while it grows beyond the memory it may take.

A state is filled key by key; after each part of them, keys are read, changed and written: only as
many as fit into its caches (`cached`), all alike (`uniform`), a tenth of them nine times out of ten
(`skewed`). Each face is measured in a process of its own; its memory is what the state took, beside
that of an empty process, and without what it maps of files, which is told apart.

    values   a value state of 200 bytes, by the row face
    columns  running sums, by the column face
    rows     the last row of each key, kept whole: a number and a text, 200 bytes; what finds it is
             in memory
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
from strom.core.growing import Growing
from strom.core.ids import KeyGroupRange
from strom.state.backend import AccColumn, KeyedStateBackend
from strom.state.descriptors import ValueStateDescriptor
from strom.state.key_index import CompositeIndex
from strom.state.keyed_state import KeyedStates

from .apart import Broken, apart
from .configured import job_config
from .streams import mix

BATCH = 16384
GROUPS = 128
VALUE_BYTES = 200
ROW_BYTES = {"values": VALUE_BYTES + 8, "columns": 16, "rows": VALUE_BYTES}
"""Of a key and its value."""

ACCESSES = ("cached", "uniform", "skewed")

Step = Callable[[npt.NDArray[np.int64]], None]


def lines(
    size: int, memory: int, seconds: float, steps: int, faces: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """For each face a line at each of so many sizes, up to `size` bytes of keys and values; a face
    whose process broke says how. `memory`: bytes that the state may take. `seconds`: of each
    measurement."""
    for face in faces:
        try:
            yield from apart(measured, face, size, memory, seconds, steps)
        except Broken as error:
            yield {"name": "statesize", "face": face, "error": str(error)}


def measured(face: str, size: int, memory: int, seconds: float, steps: int) -> list[dict[str, Any]]:
    """The lines of one face, measured in this process; in RocksDB, whatever the configuration says:
    state in memory does not outgrow it."""
    config = replace(job_config().state, backend="rocksdb", memory=memory)
    states = KeyedStates(config)
    state = states.make(KeyGroupRange(0, GROUPS - 1), GROUPS)
    step = {"values": _values, "columns": _columns, "rows": _rows}[face](state)
    step(_keys(np.arange(BATCH)))
    process = psutil.Process()
    empty = _own(process)
    random = np.random.default_rng(1)
    whole = size // ROW_BYTES[face]
    fitting = max(int(memory * (1 - config.rocksdb_share)) // (ROW_BYTES[face] * 4), 1)
    found, keys = [], 0
    for part in range(1, steps + 1):
        wanted = max(whole * part // steps, 1)
        started = time.perf_counter()
        for first in range(keys, wanted, BATCH):
            state.time.begin(BATCH)
            step(_keys(np.arange(first, min(first + BATCH, wanted))))
        filled = (wanted - keys) / (time.perf_counter() - started)
        keys, most = wanted, max(_own(process), empty)
        line: dict[str, Any] = {"name": "statesize", "face": face, "backend": config.backend}
        line |= {"bytes": keys * ROW_BYTES[face], "memory": memory, "keys": keys}
        line["fill_per_s"] = round(filled)
        for access in ACCESSES:
            records, started, busy = 0, time.perf_counter(), time.thread_time()
            while time.perf_counter() - started < seconds:
                state.time.begin(BATCH)
                step(_keys(_chosen(random, access, keys, fitting)))
                records += BATCH
                most = max(most, _own(process))
            line[f"{access}_per_s"] = round(records / (time.perf_counter() - started))
            line[f"{access}_per_cpu_s"] = round(records / (time.thread_time() - busy))
        line["rss_mb"] = (most - empty) >> 20
        line["mapped_mb"] = process.memory_info().shared >> 20
        figures: dict[str, float] = {}
        state.report(figures.__setitem__)
        found.append({**line, **{name: round(value) for name, value in figures.items()}})
    states.close()
    return found


def _own(process: psutil.Process) -> int:
    """Bytes in memory that are not mapped of files."""
    found = process.memory_info()
    return int(found.rss - found.shared)


def _keys(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """In no order."""
    return mix(numbers.astype(np.uint64)).view(np.int64)


def _chosen(
    random: np.random.Generator, access: str, keys: int, fitting: int
) -> npt.NDArray[np.int64]:
    """A batch of numbers of keys."""
    match access:
        case "uniform":
            return random.integers(0, keys, BATCH)
        case "skewed":
            some = random.integers(0, max(keys // 10, 1), BATCH)
            return np.where(random.random(BATCH) < 0.9, some, random.integers(0, keys, BATCH))
    return random.integers(0, min(fitting, keys), BATCH)


def _values(state: KeyedStateBackend) -> Step:
    values, current = state.get_state(ValueStateDescriptor("value")), state.current
    fresh = bytes(VALUE_BYTES - 8)

    def step(keys: npt.NDArray[np.int64]) -> None:
        for current.key in keys.tolist():
            held = values.value() or b""
            number = int.from_bytes(held[:8], "little") + 1
            values.update(number.to_bytes(8, "little") + fresh)

    return step


def _columns(state: KeyedStateBackend) -> Step:
    schema = pa.schema([("k", pa.int64())])
    sums = state.table("sums", schema, [AccColumn("sum", "int64")], cold=True).table()

    def step(keys: npt.NDArray[np.int64]) -> None:
        slots = sums.slots(pa.RecordBatch.from_arrays([pa.array(keys)], schema=schema))
        np.add.at(sums.column("sum"), slots, 1)

    return step


def _rows(state: KeyedStateBackend) -> Step:
    schema = pa.schema([("k", pa.int64()), ("text", pa.string())])
    rows = state.rows("rows", schema, [0], ordered=False)
    index, positions = CompositeIndex(schema.remove(1)), Growing(np.int64, -1)
    texts = pa.array(["x" * (VALUE_BYTES - 8)] * BATCH)

    def step(keys: npt.NDArray[np.int64]) -> None:
        keys = np.unique(keys)
        slots = index.upsert([pa.array(keys)])
        positions.reserve(len(index))
        former = positions.array[slots]
        former = former[former >= 0]
        rows.read(former)
        columns = [pa.array(keys), texts.slice(0, len(keys))]
        positions.array[slots] = rows.add(pa.RecordBatch.from_arrays(columns, schema=schema))
        rows.release(former)

    return step
