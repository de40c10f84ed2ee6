"""Jobs of a session on a real Ray, which last until they are let go, and what they must write."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from chaos_kit import config, environment, until, window_sums, windows_of
from leashed_source import Leashed
from strom import CollectSink
from strom.cli.main import app
from strom.connectors.files import ParquetSink
from typer.testing import CliRunner

COUNT = 4_000


class Counting:
    """A job of `parallelism` slots that sums windows into files, exactly once, until released."""

    def __init__(
        self,
        folder: Path,
        parallelism: int = 2,
        count: int = COUNT,
        collects: bool = False,
        **settings: Any,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        settings.setdefault("interval_ms", 200)
        made = config(folder / "state", parallelism=parallelism, batch_size=20, **settings)
        env = environment(made, "ray")
        stream = windows_of(env, Leashed(folder / "release", count))
        stream.sink_to(ParquetSink(folder / "out"))
        if collects:
            stream.sink_to(CollectSink()).name("collected")
        self.graph = env.get_job_graph(folder.name)
        self.env = env

    def submit(self) -> Any:
        self.client = self.env._submit(self.graph)
        return self.client

    def published(self) -> Iterator[Any]:
        """What the client is given of the same records."""
        operators = (o for v in self.graph.vertices for o in v.operators)
        sink = next(o.operator_id for o in operators if o.name == "collected")
        for rows in self.client.published(sink):
            yield from rows

    def release(self) -> None:
        (self.folder / "release").touch()

    def check(self) -> None:
        files = glob.glob(f"{self.folder}/out/**/*.parquet", recursive=True)
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        found = [(r["key"], r["window_start"], r["n"], r["total"]) for r in rows]
        assert sorted(found) == window_sums(COUNT)


def answer_of(*words: str, code: int = 0) -> str:
    """What the command says; its exit code must be this."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def completed(client: Any, more: int) -> None:
    """Wait until so many more checkpoints are complete."""
    wanted = client.metrics()["checkpoints"]["completed"] + more
    until(lambda: client.metrics()["checkpoints"]["completed"] >= wanted, "checkpoints", 60.0)
