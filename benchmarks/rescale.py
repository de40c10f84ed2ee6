"""How long no records come out while a job that runs gets another parallelism.

    paced records -> by key -> a value of 2 KB for each key, and notes of when records came ->
    nothing

Once all keys have their values and a checkpoint has them, the job is rescaled to each of `steps` in
turn, as the same job (`client.rescale`). Of each: `silence_ms`, the longest time without a note
from when it was asked for until a second behind its end, beside the longest of the second before
that (`usual_gap_ms`); `told_ms`, what the job itself says, between the word to its tasks to stop
and the last of the new ones that runs; `took_s`, all of it, with slots, processes and the
checkpoint, while the former tasks still work.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from strom import (
    CheckpointConfig,
    DiscardSink,
    JobConfig,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from strom.connectors.datagen import DataGenSource

from . import restore
from .streams import KEY_VALUE

VALUE_BYTES = 2_000
SPLITS = 6
NOTE = struct.Struct("<d")
NOTE_EVERY_S = 0.002
AROUND_S = 1.0
LONGEST_S = 300.0


class Noted(KeyedProcessFunction):
    """Keeps a value for each key, and notes when it is called, each process in a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.stored = runtime_context.get_state(ValueStateDescriptor("stored"))
        path = f"{self._folder}/{os.getpid()}-{time.time_ns()}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.noted = 0.0

    def close(self) -> None:
        os.close(self.file)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        held = self.stored.value() or b""
        times = int.from_bytes(held[:8], "little") + 1
        self.stored.update(times.to_bytes(8, "little") + bytes(VALUE_BYTES - 8))
        now = time.time()
        if now >= self.noted + NOTE_EVERY_S:
            self.noted = now
            os.write(self.file, NOTE.pack(now))
        yield value.k, times


def measure_rescale(state_mb: int, rate: int, steps: Sequence[int]) -> dict[str, Any]:
    """One line. `steps`: the first is the parallelism that the job begins with."""
    keys = max(1, state_mb * 1_000_000 // VALUE_BYTES)
    with (
        restore.opened("ray") as host,
        tempfile.TemporaryDirectory(prefix="strom-bench-") as folder,
    ):
        notes = Path(folder, "notes")
        notes.mkdir()
        client = _job(folder, keys, rate, steps[0], host).execute_async("rescale")
        try:
            restore.until(client, lambda m: restore.arrived(m) >= keys * 3 // 2)
            done = client.metrics()["checkpoints"]["completed"]
            restore.until(client, lambda m: m["checkpoints"]["completed"] > done + 1)
            size = client.metrics()["checkpoints"]["last_size"]
            rescales = [_rescaled(client, notes, *step) for step in pairwise(steps)]
        finally:
            client.cancel()
    return {
        "name": "rescale",
        "host": "ray",
        "state_mb": state_mb,
        "checkpoint_bytes": size,
        "rate": rate,
        "rescales": rescales,
    }


def _rescaled(client: Any, notes: Path, before: int, after: int) -> dict[str, Any]:
    time.sleep(2 * AROUND_S)
    asked = time.time()
    made = client.rescale(after).result(LONGEST_S)
    done = time.time()
    time.sleep(2 * AROUND_S)
    times = _times(notes)
    return {
        "from": before,
        "to": after,
        "silence_ms": _longest_gap_ms(times, asked, done + AROUND_S),
        "usual_gap_ms": _longest_gap_ms(times, asked - AROUND_S, asked),
        "told_ms": round(made.silence.total_seconds() * 1000),
        "took_s": round(done - asked, 2),
    }


def _times(folder: Path) -> list[float]:
    found = []
    for path in folder.iterdir():
        data = path.read_bytes()
        whole = data[: len(data) // NOTE.size * NOTE.size]
        found += [at for (at,) in NOTE.iter_unpack(whole)]
    return sorted(found)


def _longest_gap_ms(times: Sequence[float], start: float, end: float) -> int:
    within = [start, *(at for at in times if start <= at < end), end]
    return round(max(b - a for a, b in pairwise(within)) * 1000)


def _job(folder: str, keys: int, rate: int, parallelism: int, host: Any) -> Any:
    config = JobConfig(
        parallelism=parallelism,
        slot_cpus=0.1,
        metrics_interval=restore.METRICS_EVERY,
        checkpoint=CheckpointConfig(timedelta(seconds=1), f"{folder}/checkpoints"),
    )
    env = StreamExecutionEnvironment.get_execution_environment(config, host)
    source = DataGenSource(
        partial(restore.records, keys), splits=SPLITS, schema=KEY_VALUE, rate=rate
    )
    read = env.from_source(source, source_name="keys").uid("keys")
    stored = read.key_by("k").process(Noted(f"{folder}/notes")).uid("stored")
    stored.sink_to(DiscardSink()).uid("nowhere")
    return env
