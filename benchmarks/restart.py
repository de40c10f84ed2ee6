"""`restore --local-recovery`: how long a job with much state is down when one of its tasks fails.

The job of `restore`, with checkpoints as often. Behind one that has all keys a function raises, and
the seconds are measured until the first record of the next attempt has left the operator with the
state: once with all files read from the storage, once from copies on the machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from strom import CheckpointConfig, DiscardSink, FixedDelayRestart, JobConfig
from strom import StreamExecutionEnvironment as Environment
from strom.api.jobs.host import Host
from strom.connectors.datagen import DataGenSource

from . import restore
from .configured import job_config
from .measure import slot_cpus
from .streams import KEY_VALUE

LOOK_EVERY = 1_000
"""Records of a subtask."""


class Failing(restore.Stored):
    """Raises once there is a file at `path`, which it removes."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.seen = 0

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen += 1
        if self.seen % LOOK_EVERY == 0 and self.path.exists():
            self.path.unlink(missing_ok=True)
            raise RuntimeError("it is to fail")
        return super().process_element(value, ctx)


def measure_restarts(
    size: int, backends: list[str], parallelisms: list[int], host: str
) -> Iterator[dict[str, Any]]:
    """A line for each backend and parallelism, without copies and with; `size`: bytes of keys and
    values."""
    keys = max(size // restore.ROW_BYTES, 1)
    with restore.opened(host) as opened:
        for backend in backends:
            for parallelism in parallelisms:
                for copies in (False, True):
                    yield {
                        "name": "restart",
                        "backend": backend,
                        "bytes": size,
                        "keys": keys,
                        "parallelism": parallelism,
                        "local_recovery": copies,
                        **_restarted(backend, parallelism, copies, opened, keys),
                        "host": host,
                    }


def _restarted(
    backend: str, parallelism: int, copies: bool, host: Host, keys: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        client = _job(backend, parallelism, copies, host, folder, keys).execute_async("restart")
        try:
            client_until = partial(restore.until, client)
            client_until(lambda m: restore.arrived(m) >= keys * 5 // 4 + restore.SLACK)
            done = client.metrics()["checkpoints"]["completed"]
            client_until(lambda m: m["checkpoints"]["completed"] > done + 1)
            before = client.metrics()
            started = time.perf_counter()
            Path(folder, "fail").touch()
            client_until(lambda m: m["attempt"] > before["attempt"] and restore.arrived(m) > 0)
            took = time.perf_counter() - started
            figures = client.metrics()["checkpoints"]
        finally:
            client.cancel()
    return {
        "checkpoint_ms": before["checkpoints"]["last_duration_ms"],
        "first_record_s": round(took, 2),
        "restored_bytes": figures["restored_bytes"],
        "restored_local_bytes": figures["restored_local_bytes"],
    }


def _job(
    backend: str, parallelism: int, copies: bool, host: Host, folder: str, keys: int
) -> Environment:
    told = job_config()
    checkpoint = CheckpointConfig(
        told.checkpoint.interval or restore.CHECKPOINT_EVERY,
        told.checkpoint.storage or f"{folder}/checkpoints",
        local_recovery=copies,
        local_dirs=told.checkpoint.local_dirs,
    )
    env = Environment.get_execution_environment(
        JobConfig(
            parallelism=parallelism,
            state=replace(told.state, backend=backend),
            checkpoint=checkpoint,
            slot_cpus=slot_cpus(parallelism),
            metrics_interval=restore.METRICS_EVERY,
            restart=FixedDelayRestart(1, restore.NO_DELAY),
        ),
        host,
    )
    source = DataGenSource(partial(restore.records, keys), splits=restore.SPLITS, schema=KEY_VALUE)
    read = env.from_source(source, source_name="keys").uid("keys")
    stored = read.key_by("k").process(Failing(f"{folder}/fail")).uid("stored")
    stored.sink_to(DiscardSink()).uid("nowhere")
    return env
