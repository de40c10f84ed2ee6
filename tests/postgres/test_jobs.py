"""Whole jobs: from one table into others, through failures of tasks and of the server."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pytest
from postgres_kit import Database, Writing, until
from strom import (
    CheckpointConfig,
    DiscardSink,
    ExponentialDelayRestart,
    FixedDelayRestart,
    JobConfig,
    JobFailedError,
    StreamExecutionEnvironment,
    count,
    sum_,
)
from strom.connectors.postgres import (
    PostgresCdcSource,
    PostgresConnection,
    PostgresSink,
    PostgresUpsertSink,
)
from strom.core.errors import GraphError
from strom.testing.postgres import PASSWORD

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, g int, v bigint)",
    "ALTER TABLE items REPLICA IDENTITY FULL",
    "INSERT INTO items SELECT i, i % 5, i FROM generate_series(1, 200) i",
)

COPIES = (
    "CREATE TABLE copy (id int PRIMARY KEY, g int, v bigint)",
    "CREATE TABLE totals (g int PRIMARY KEY, n bigint, total bigint)",
    "CREATE TABLE log (id int, g int, v bigint, kind smallint)",
)


def settings(folder: Path | None = None, parallelism: int = 2) -> JobConfig:
    return JobConfig(
        parallelism=parallelism,
        batch_size=50,
        checkpoint=CheckpointConfig(
            interval=timedelta(milliseconds=100),
            storage=None if folder is None else str(folder),
        ),
        restart=ExponentialDelayRestart(
            initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=50)
        ),
    )


def write(connection: Any, number: int) -> None:
    """A few changes of random rows; some transactions are larger."""
    draw = random.Random(number)
    for _ in range(40 if number % 20 == 0 else 3):
        key = draw.randrange(300)
        if draw.random() < 0.3:
            connection.execute("DELETE FROM items WHERE id = %s", (key,))
        else:
            connection.execute(
                "INSERT INTO items VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE "
                "SET g = excluded.g, v = excluded.v",
                (key, draw.randrange(5), number),
            )


def mirror(env: StreamExecutionEnvironment, database: Database, trip: Any = None) -> None:
    """The table once more, its totals by group, and each change as a row."""
    captured = PostgresCdcSource(database.conninfo, "items", slot=f"slot_{database.name}")
    changes = env.from_source(captured, source_name="items").uid("items")
    if trip is not None:
        changes = changes.map_batches(trip).uid("trip")
    copied = changes.key_by("id")
    copied.sink_to(PostgresUpsertSink(database.conninfo, "copy", "id")).uid("copy")
    totals = changes.key_by("g").aggregate(n=count(), total=sum_("v")).uid("sums")
    totals.key_by("g").sink_to(PostgresUpsertSink(database.conninfo, "totals", "g")).uid("totals")
    kinds = pl.col("__row_kind").cast(pl.Int16).alias("kind")
    log = changes.select("id", "g", "v", kinds).uid("as rows")
    log.sink_to(PostgresSink(database.conninfo, "log")).uid("log")


def mirrored(database: Database) -> bool:
    """Whether all has come."""
    if database.table("copy") != database.table("items"):
        return False
    sums = "SELECT g, count(*), sum(v)::bigint FROM items GROUP BY g"
    if sorted(database.run(sums)) != sorted(database.table("totals")):
        return False
    there = "SELECT id, g, v FROM log GROUP BY 1, 2, 3 HAVING sum(1 - kind % 2 * 2)"
    if database.run(f"{there} NOT IN (0, 1)"):
        return False
    return sorted(database.run(f"{there} = 1")) == sorted(database.run("SELECT * FROM items"))


class Trip:
    """Fails a few times: at first perhaps before there is a checkpoint, then some checkpoints
    apart."""

    def __init__(self, folder: Path, storage: Path, times: int) -> None:
        self.folder = str(folder)
        self.storage = str(storage)
        self.times = times

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        fuse = Path(self.folder)
        before = len(list(fuse.iterdir()))
        if before < self.times and self.checkpoint() >= 4 * before and random.random() < 0.2:
            (fuse / f"{time.time_ns()}").touch()
            raise ValueError("tripped")
        return batch

    def checkpoint(self) -> int:
        """The last one."""
        folders = Path(self.storage).rglob("chk-*")
        return max((int(path.name.split("-")[1]) for path in folders), default=0)


@pytest.fixture
def items(database: Database) -> Database:
    database.run(*ITEMS, *COPIES)
    return database


def test_a_table_is_mirrored_exactly_through_failures(items: Database, tmp_path: Path) -> None:
    fuse, storage = tmp_path / "fuse", tmp_path / "storage"
    fuse.mkdir()
    env = StreamExecutionEnvironment.get_execution_environment(settings(storage))
    mirror(env, items, Trip(fuse, storage, 4))
    assert PASSWORD not in env.explain()
    client = env.execute_async("mirror")
    try:
        with Writing(items, write) as writing:
            until(lambda: len(list(fuse.iterdir())) == 4, "four failures of tasks")
            items.terminate()
            until(lambda: writing.count > 150, "writes")
        until(lambda: mirrored(items), "the mirror to be complete")
        assert client.metrics()["checkpoints"]["restored_from"] is not None
    finally:
        client.cancel()
    kept = [path for path in storage.rglob("*") if path.is_file()]
    assert kept
    assert not any(PASSWORD.encode() in path.read_bytes() for path in kept), "in a checkpoint"


def test_a_job_goes_on_from_a_checkpoint_at_another_parallelism(
    items: Database, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(settings(tmp_path))
    mirror(env, items)
    client = env.execute_async("mirror")
    until(lambda: mirrored(items), "the mirror to be complete")
    client.cancel()
    items.run("UPDATE items SET g = 0 WHERE id < 50", "DELETE FROM items WHERE id > 150")
    latest = max(tmp_path.rglob("chk-*"), key=lambda path: int(path.name.split("-")[1]))
    config = replace(settings(tmp_path, parallelism=3), restore_from=str(latest))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    mirror(env, items)
    client = env.execute_async("mirror")
    try:
        until(lambda: mirrored(items), "the mirror to be complete again")
    finally:
        client.cancel()


class Noting:
    """Writes each row into a file, and the names of its columns."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with Path(self.path).open("a") as file:
            file.writelines(f"{sorted(row)}\n" for row in batch.to_pylist())
        return batch


def noting(database: Database, config: JobConfig, notes: Path) -> Any:
    """A job that does not look at the table where the program is written."""
    env = StreamExecutionEnvironment.get_execution_environment(config)
    captured = PostgresCdcSource(database.conninfo, "items", slot=f"slot_{database.name}")
    changes = env.from_source(captured, source_name="items").uid("items")
    changes.map_batches(Noting(notes)).uid("notes").sink_to(DiscardSink()).uid("end")
    return env.execute_async("notes")


def test_a_table_altered_under_a_job_fails_it_for_good(items: Database, tmp_path: Path) -> None:
    """Each restart, and each restore of a new program, says so: nothing comes with other
    columns."""
    notes, storage = tmp_path / "notes", tmp_path / "storage"
    few = FixedDelayRestart(3, timedelta(milliseconds=20))
    config = replace(settings(storage, parallelism=1), restart=few)

    def noted() -> int:
        return len(notes.read_text().splitlines()) if notes.exists() else 0

    def latest() -> int:
        return max((int(p.name.split("-")[1]) for p in storage.rglob("chk-*")), default=0)

    client = noting(items, config, notes)
    until(lambda: noted() == 200, "the rows")
    start = latest()
    until(lambda: latest() > start + 2, "a checkpoint behind them")
    client.cancel()
    path = str(max(storage.rglob("chk-*"), key=lambda found: int(found.name.split("-")[1])))

    client = noting(items, replace(config, restore_from=path), notes)
    items.run("UPDATE items SET v = 0 WHERE id = 7")
    until(lambda: noted() == 202, "a change behind the restore")
    items.run("ALTER TABLE items DROP v")
    items.run("UPDATE items SET g = 9 WHERE id = 8")
    gone = r"operator 'items', subtask 0: .*column 'v' of table public.items is gone or renamed"
    with pytest.raises(JobFailedError, match=f"{gone}.*drop the slot and start the job anew"):
        client.get_job_execution_result(timedelta(seconds=60))
    assert client.metrics()["restarts"] == 3, "it failed each time"

    client = noting(items, replace(config, restore_from=path), notes)
    with pytest.raises(JobFailedError, match=gone):
        client.get_job_execution_result(timedelta(seconds=60))
    assert set(notes.read_text().splitlines()) == {"['__row_kind', 'g', 'id', 'v']"}


def test_a_batch_job(items: Database) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    captured = PostgresCdcSource(items.conninfo, "items", slot="batch", stop_at="now")
    assert env.from_source(captured).execute_and_collect(limit=1000)[-1] == (200, 0, 200, 0)


def test_an_upsert_changelog_is_not_misread(items: Database) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    captured = PostgresCdcSource(items.conninfo, "items", slot="up", changelog="upsert")
    stream = env.from_source(captured, source_name="items")
    words = "upsert changelog of 'items'.*changelog=\"retract\" in that source"
    with pytest.raises(GraphError, match=words):
        stream.key_by("g").aggregate(n=count())
    with pytest.raises(GraphError, match="upsert changelog of 'items'"):
        stream.key_by("id").deduplicate("last")


def test_a_source_that_cannot_be_reached_is_planned_without_columns() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    away = PostgresConnection("host=127.0.0.1 port=1 dbname=x", patience=timedelta(0))
    captured = PostgresCdcSource(away, "items", slot="away", changelog="upsert")
    stream = env.from_source(captured, source_name="items")
    with pytest.raises(GraphError, match="upsert changelog"):
        stream.key_by("g").aggregate(n=count())
    with pytest.raises(JobFailedError, match=r"operator 'items', subtask 0: .*cannot read table"):
        list(stream.execute_and_collect())


# --- on Ray --------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.ray
def test_a_task_actor_is_killed(items: Database, tmp_path: Path, cluster: None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        settings(tmp_path, parallelism=1), host="ray"
    )
    mirror(env, items)
    client = env.execute_async("mirror")
    try:
        until(lambda: items.table("copy"), "the first rows", 90.0)
        with Writing(items, write) as writing:
            for reads in (True, False):
                reader = until(lambda: reading_process(items), "the one that reads", 60.0)
                others = [pid for pid in task_processes() if pid != reader]
                start = writing.count
                psutil.Process(reader if reads else others[0]).kill()
                until(lambda n=start: writing.count > n + 200, "writes")
        until(lambda: mirrored(items), "the mirror to be complete", 90.0)
    finally:
        client.cancel()


def reading_process(database: Database) -> int | None:
    """Of the tasks' processes the one that has the slot's connection."""
    query = "SELECT client_port FROM pg_stat_replication WHERE application_name = 'strom'"
    ports = {port for (port,) in database.run(query)}
    for pid in task_processes():
        with suppress(psutil.NoSuchProcess):
            if any(c.laddr.port in ports for c in psutil.Process(pid).net_connections("tcp")):
                return pid
    return None


def task_processes() -> list[int]:
    """Of which each has tasks of the job."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "TaskActor" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found
