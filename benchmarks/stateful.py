"""A job on Ray with much state, which notes when its records come: for what stops it for a while.

paced records -> by key -> a value of 2 KB for each key, and notes of when records came ->
nothing
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from strom import (
    CheckpointConfig,
    DiscardSink,
    FixedDelayRestart,
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


@dataclass(frozen=True)
class StatefulJob:
    """One that runs. `checkpoint_bytes`: of its newest checkpoint when it had all its state."""

    client: Any
    notes: Path
    checkpoint_bytes: int

    def silence_ms(self, start: float, end: float) -> int:
        """The longest time without a note between these (seconds since 1970)."""
        times: list[float] = []
        for path in self.notes.iterdir():
            data = path.read_bytes()
            whole = data[: len(data) // NOTE.size * NOTE.size]
            times += [at for (at,) in NOTE.iter_unpack(whole) if start <= at < end]
        return round(max(b - a for a, b in pairwise([start, *sorted(times), end])) * 1000)


@contextmanager
def stateful_job(name: str, state_mb: int, rate: int, parallelism: int) -> Iterator[StatefulJob]:
    """Runs, and all its state is in a checkpoint; is cancelled in the end."""
    keys = max(1, state_mb * 1_000_000 // VALUE_BYTES)
    with (
        restore.opened("ray") as host,
        tempfile.TemporaryDirectory(prefix="strom-bench-") as folder,
    ):
        notes = Path(folder, "notes")
        notes.mkdir()
        client = _program(folder, keys, rate, parallelism, host).execute_async(name)
        try:
            restore.until(client, lambda m: restore.arrived(m) >= keys * 3 // 2)
            done = client.metrics()["checkpoints"]["completed"]
            restore.until(client, lambda m: m["checkpoints"]["completed"] > done + 1)
            yield StatefulJob(client, notes, client.metrics()["checkpoints"]["last_size"])
        finally:
            client.cancel()


def _program(folder: str, keys: int, rate: int, parallelism: int, host: Any) -> Any:
    config = JobConfig(
        parallelism=parallelism,
        slot_cpus=0.1,
        metrics_interval=restore.METRICS_EVERY,
        restart=FixedDelayRestart(1000, timedelta(0)),
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
