"""What the machine can do at this moment: fixed work on columns, without anything of strom.

A rate of strom's divided by that of this pass, of the same minutes, can be compared between
machines and days, as far as both are bound by the same: a core, its caches and memory. The work
never changes; if it has to, `VERSION` does, and what was kept before cannot be compared.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .apart import apart

VERSION = 1
SECONDS = 2.0
ROWS = 1 << 18
KEYS = 1 << 16


def raw_pass(processes: int, seconds: float = SECONDS) -> float:
    """Rows per second of so many processes together."""
    with ThreadPoolExecutor(processes) as pool:
        made = [pool.submit(apart, passed, seconds) for _ in range(processes)]
    return float(sum(one.result() for one in made))


def passed(seconds: float) -> float:
    """Rows per second of this process: hashed, counted by key, gathered in order, filtered, copied
    through Arrow's format for messages."""
    _once()
    started, rows = time.perf_counter(), 0
    while (took := time.perf_counter() - started) < seconds:
        rows += _once()
    return rows / took


def _once() -> int:
    numbers = np.arange(ROWS, dtype=np.uint64)
    hashed = numbers * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(32)
    keys = (hashed % np.uint64(KEYS)).astype(np.int64)
    counts = np.bincount(keys, minlength=KEYS)
    order = np.argsort(keys, kind="stable")
    batch = pa.record_batch({"key": keys[order], "count": counts[keys], "value": hashed})
    kept = batch.filter(pc.greater(batch["count"], 2))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kept.schema) as writer:
        writer.write_batch(kept)
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    return ROWS if read.num_rows == kept.num_rows else 0
