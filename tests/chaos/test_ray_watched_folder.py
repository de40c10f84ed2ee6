"""A job on Ray reads a folder in which files appear, and writes files that it merges, while its
processes are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos_kit import config, environment, until
from shared_ray import ray_of
from strom.connectors.files import FileCompactStrategy, FileSource, ParquetSink

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SCHEMA = pa.schema([("n", pa.int64()), ("half", pa.int64())])
KILLS = 4
ROWS = 50


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


class Feed:
    """Writes files of `ROWS` numbers each, into the folders `half=0` and `half=1` in turn."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0

    def more(self, files: int) -> None:
        for _ in range(files):
            numbers = list(range(self.files * ROWS, (self.files + 1) * ROWS))
            folder = self.folder / f"half={self.files % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            hidden = folder / f".{self.files}.parquet"
            pq.write_table(pa.table({"n": numbers}), hidden, row_group_size=20)
            hidden.rename(folder / f"{self.files}.parquet")
            self.files += 1

    def expected(self) -> list[tuple[int, int]]:
        return [(n, n // ROWS % 2) for n in range(self.files * ROWS)]


def published(folder: Path) -> list[tuple[int, int]]:
    files = sorted(folder.glob("part-*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted((row["n"], row["half"]) for row in rows)


@pytest.mark.soak
def test_each_row_once_whatever_is_killed(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.more(2)
    env = environment(config(tmp_path / "state", interval_ms=100, chaining=False), "ray")
    source = FileSource(tmp_path / "in", schema=SCHEMA, monitor_interval=20)
    merged = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    stream = env.from_source(source).filter(lambda row: row.n >= 0)
    stream.sink_to(ParquetSink(tmp_path / "out", compact=merged))
    client = env.execute_async("watched")
    try:
        for kill in range(KILLS):
            feed.more(3)
            running = until(lambda: _running(client), "a running job", 60.0)
            attempt = running["attempt"]
            feed.more(3)
            os.kill(running["tasks"][kill % len(running["tasks"])]["pid"], signal.SIGKILL)
            until(lambda n=attempt: client.metrics()["attempt"] > n, "the next attempt", 30.0)
        feed.more(2)
        want = feed.expected()
        until(lambda: len(published(tmp_path / "out")) >= len(want), "all rows", 60.0)
        running = until(lambda: _running(client), "a running job", 60.0)
        assert published(tmp_path / "out") == want
    finally:
        client.cancel()
    assert published(tmp_path / "out") == want


def _running(client: Any) -> Any:
    """The metrics once all tasks run and a checkpoint more has completed than when first asked."""
    found = client.metrics()
    done = found["checkpoints"]["completed"]
    if found["state"] != "RUNNING" or any(t["state"] != "running" for t in found["tasks"]):
        return None
    until(lambda: client.metrics()["checkpoints"]["completed"] > done, "a checkpoint", 60.0)
    return client.metrics()
