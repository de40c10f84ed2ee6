"""A checkpoint whose uploads hang holds up no later one, and leaves nothing when they come through
in the end."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import uuid4

import fsspec
from chaos_kit import config, until, within
from fsspec.implementations.memory import MemoryFileSystem
from strom import WatermarkStrategy
from strom.api.jobs.host import open_host
from strom.connectors.datagen import DataGenSource
from strom.testing.probes import CollectProbe


class Hanging(MemoryFileSystem):  # type: ignore[misc]
    """Files of the second checkpoint are opened when the gate is."""

    protocol = "strom-hanging"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    gate = threading.Event()
    waiting: ClassVar[list[str]] = []

    def _open(self, path: str, mode: str = "rb", *rest: Any, **options: Any) -> Any:
        if mode == "wb" and ("/chk-2/" in path or "/shared/2-" in path) and not self.gate.is_set():
            self.waiting.append(path)
            assert self.gate.wait(60)
        return super()._open(path, mode, *rest, **options)


def build(env: Any) -> Any:
    numbers = DataGenSource(lambda start, n: list(range(start, start + n)), 100_000, rate=500)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks())
    return stream.key_by(lambda n: n % 7).reduce(lambda a, b: a + b)


def test_the_next_checkpoints_complete_while_one_hangs() -> None:
    fsspec.register_implementation("strom-hanging", Hanging, clobber=True)
    settings = config(None, interval_ms=50, parallelism=2, tolerable=99, retained=1)
    root = f"strom-hanging://{uuid4().hex}"
    settings = replace(
        settings,
        checkpoint=replace(settings.checkpoint, storage=root, timeout=timedelta(seconds=1)),
    )
    client = open_host("local").submit(CollectProbe(build).graph(settings), "sums")
    try:
        until(lambda: Hanging.waiting, "an upload that hangs")
        until(lambda: client.metrics()["checkpoints"]["failed"] == 1, "the timeout")
        until(lambda: client.metrics()["checkpoints"]["completed"] >= 3, "others that complete")
        assert not Hanging.gate.is_set()
    finally:
        Hanging.gate.set()
        within(20.0, "the end", client.cancel)
    until(
        lambda: not any(t.name == "strom-transfer" for t in threading.enumerate()), "their threads"
    )
    assert not [path for path in Hanging.store if "/chk-2/" in path or "/shared/2-" in path]
