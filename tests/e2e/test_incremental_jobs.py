"""A job with incremental checkpoints is cancelled, and another one goes on from its deltas."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from chaos_kit import until
from held_source import HeldSource
from shaky_storage import layers_of
from strom import WatermarkStrategy
from strom.api.jobs.host import open_host
from strom.checkpoint.storage import open_storage
from strom.testing.equivalence import Ways, checkpointed, run_local
from strom.testing.probes import CollectProbe

COUNT, KEYS, HOT = 1_600, 300, 10
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("time", pa.int64())])


def key_of(n: int) -> str:
    """All keys once, then a few of them again and again."""
    return f"k{n if n < KEYS else n * 7 % HOT}"


def generate(first: int, number: int) -> list[tuple[str, int, int]]:
    return [(key_of(n), n, 10 * n) for n in range(first, first + number)]


def slowly(env: Any, latch: Event) -> Any:
    """It comes to its end when the latch is set."""
    shape = {"splits": 1, "schema": SCHEMA, "block": 16}
    source = HeldSource(generate, COUNT, latch, COUNT // 4, 300.0, **shape)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    return env.from_source(source, strategy, "records").key_by("key").sum("value").map(tuple)


def test_a_local_job_is_stopped_and_another_goes_on_from_its_deltas(tmp_path: Path) -> None:
    config = checkpointed(Ways(batch_size=64), 2)
    interval = timedelta(milliseconds=50)
    kept = replace(config.checkpoint, storage=str(tmp_path), interval=interval)
    config = replace(config, checkpoint=kept)
    latch = Event()
    graph = CollectProbe(lambda env: slowly(env, latch)).graph(config)
    client = open_host("local").submit(graph, graph.name)
    storage = open_storage(str(tmp_path), str(client.get_job_id()))

    def has_delta() -> bool:
        manifest = storage.latest_valid().manifest
        return manifest is not None and "delta" in layers_of(manifest)

    until(has_delta, "a delta")
    client.cancel()
    newest = storage.latest_valid().manifest
    assert newest is not None
    point = tmp_path / storage.job_id / f"chk-{newest.checkpoint_id}"
    latch.set()
    found = run_local(lambda env: slowly(env, latch), replace(config, restore_from=str(point)))
    totals = {row[0]: row[1] for row in found}
    expected_totals: dict[str, int] = {}
    for n in range(COUNT):
        expected_totals[key_of(n)] = expected_totals.get(key_of(n), 0) + n
    hot = {f"k{n}" for n in range(HOT)}
    assert {key: totals[key] for key in hot} == {key: expected_totals[key] for key in hot}
    assert len(found) < COUNT
