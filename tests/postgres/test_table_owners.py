"""Whose a table is: who has taken it over publishes, all others are refused, and nothing is there
twice without a word."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chaos_kit import until
from postgres_kit import Database, Driven, prepare, writer
from strom import JobConfig, JobFailedError, StreamExecutionEnvironment
from strom.api.connectors.base import OutputClaim
from strom.connectors.datagen import DataGenSource
from strom.connectors.postgres import PostgresSink, PostgresUpsertSink
from strom.core.batch import ColumnBatch
from strom.core.errors import FencedError, OutputRefusedError

pytestmark = pytest.mark.postgres

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = 3_000


@pytest.fixture
def numbers(database: Database) -> Database:
    database.run("CREATE TABLE numbers (n bigint PRIMARY KEY)")
    return database


def claim(job: str, **more: Any) -> OutputClaim:
    return OutputClaim(job, "copy", "table", "table", f"token-{job}", "elsewhere", **more)


class Job:
    """A sink as one job has it, and what it publishes."""

    def __init__(self, sink: Any, claim: OutputClaim) -> None:
        self.said = list(sink.take_over(claim))
        token = sink.writers_token(claim)
        self.writer: Driven = writer(sink, job_id=claim.job_id, token=token)

    def prepared(self, checkpoint: int, *values: int) -> list[Any]:
        batch = pa.RecordBatch.from_pydict({"n": list(values)}, schema=SCHEMA)
        self.writer.write(ColumnBatch(batch))
        return prepare(self.writer, checkpoint)

    def publishes(self, checkpoint: int, *values: int) -> None:
        self.writer.commit(self.prepared(checkpoint, *values))


@pytest.fixture
def jobs(numbers: Database) -> Iterator[Any]:
    made: list[Job] = []

    def make(claim: OutputClaim, sink: Any = None, **options: Any) -> Job:
        one = Job(sink or PostgresSink(numbers.conninfo, "numbers", **options), claim)
        made.append(one)
        return one

    yield make
    for one in made:
        one.writer.close()


def found(database: Database) -> list[int]:
    return [n for (n,) in database.run("SELECT n FROM numbers ORDER BY n")]


def test_who_continues_takes_over_and_fences_the_former(numbers: Database, jobs: Any) -> None:
    first = jobs(claim("a"))
    first.publishes(1, 1)
    held = first.prepared(2, 2)
    later = first.prepared(3, 3)
    second = jobs(claim("b", origin=("a", 2)))
    with pytest.raises(FencedError, match=r"'public.numbers' any more by job a: job 'copy' \(b"):
        first.writer.commit(later)
    second.writer.recover(held)
    second.publishes(3, 3)
    assert found(numbers) == [1, 2, 3]


def test_one_point_restored_twice_is_refused_where_rows_would_be_there_twice(
    numbers: Database, jobs: Any
) -> None:
    """What both have of their origin's own is no later output: its names are known."""
    first = jobs(claim("a"))
    held = first.prepared(2, 2)
    former = jobs(claim("b", origin=("a", 2)))
    former.writer.recover(held)
    again = jobs(claim("c", origin=("a", 2)))
    again.writer.recover(held)
    again.publishes(1, 3, 4)
    with pytest.raises(OutputRefusedError, match=r"2 rows of later output .* \(c, elsewhere\)"):
        jobs(claim("d", origin=("a", 2)))
    again.publishes(2, 5)
    (said,) = jobs(claim("d", origin=("a", 2)), take_over=True).said
    assert "has 3 rows of job 'copy' (c, elsewhere) that are inserted once more" in said
    assert found(numbers) == [2, 3, 4, 5]


def test_strangers_are_refused_until_the_owner_is_over(numbers: Database, jobs: Any) -> None:
    mine = claim("a", home="/checkpoints")
    first = jobs(mine)
    first.publishes(4, 1)
    with pytest.raises(OutputRefusedError, match=r"give PostgresSink\(..., take_over=True\)"):
        jobs(claim("b"))
    with pytest.raises(OutputRefusedError, match=r"give PostgresUpsertSink\("):
        jobs(claim("b"), PostgresUpsertSink(numbers.conninfo, "numbers", "n"))
    first.publishes(5, 2)
    PostgresSink(numbers.conninfo, "numbers").release(mine, "FAILED")
    (said,) = jobs(claim("b")).said
    assert "1 rows" not in said
    assert "has 2 rows of an earlier run of this job" in said
    assert "ended as FAILED and has published up to checkpoint 5" in said
    assert "restore_from='/checkpoints/a'" in said


def test_what_is_replaced_by_key_may_come_again(numbers: Database, jobs: Any) -> None:
    sink = PostgresUpsertSink(numbers.conninfo, "numbers", "n")
    jobs(claim("a"), sink).publishes(1, 1)
    first = jobs(claim("b", origin=("a", 1)), sink)
    first.publishes(1, 2)
    second = jobs(claim("c", origin=("a", 1)), sink)
    second.publishes(1, 2)
    with pytest.raises(FencedError):
        first.publishes(2, 3)
    assert found(numbers) == [1, 2]
    numbers.run("UPDATE strom_owners SET owners = 'garbage'")
    assert "cannot be read (JSONDecodeError" in jobs(claim("x"), sink).said[0]


def test_a_commit_and_a_take_over_wait_for_each_other(numbers: Database, jobs: Any) -> None:
    """So that the one who takes over sees what was published before, whoever is quicker."""
    first = jobs(claim("a"))
    held = first.prepared(1, 1)
    with ThreadPoolExecutor(2) as pool, numbers.connect() as blocker:
        blocker.execute("LOCK TABLE numbers IN ACCESS EXCLUSIVE MODE")
        committing = pool.submit(first.writer.commit, held)
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: numbers.one(waits) == 1, "a commit that has the owners' lock")
        taking = pool.submit(jobs, claim("b", origin=("a", 0)))
        until(lambda: numbers.one(waits) == 2, "a job that waits for it")
        blocker.rollback()
        committing.result(60)
        with pytest.raises(OutputRefusedError, match="1 rows of later output"):
            taking.result(60)
    assert found(numbers) == [1]
    assert numbers.one("SELECT token FROM strom_owners") == "token-a", "it was refused"


def test_a_savepoint_that_is_restored_twice(numbers: Database, tmp_path: Path) -> None:
    """Jobs: the later of two that run goes on, and no row is there twice."""

    def start(restore_from: str | None = None, rate: float | None = None) -> Any:
        config = JobConfig(parallelism=2, restore_from=restore_from)
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.enable_checkpointing(timedelta(milliseconds=50), storage=str(tmp_path / "chk"))
        make = lambda start, count: pa.record_batch(
            {"n": list(range(start, start + count))}, SCHEMA
        )
        source = DataGenSource(make, ROWS, rate=rate, schema=SCHEMA)
        stream = env.from_source(source, None, "numbers").uid("numbers")
        stream.sink_to(PostgresSink(numbers.conninfo, "numbers")).uid("table")
        return env.execute_async("copy")

    first = start(rate=600)
    until(lambda: found(numbers), "rows")
    saved = first.stop_with_savepoint(False, str(tmp_path / "saved")).result()
    second, third = start(saved, rate=100), None
    try:
        until(lambda: second.metrics()["checkpoints"]["completed"] > 1, "checkpoints")
        with pytest.raises(JobFailedError, match="of later output are published already"):
            start(saved).get_job_execution_result(timedelta(seconds=60))
        second.cancel()
        newest = f"{tmp_path / 'chk'}/{second.get_job_id()}"
        third = start(newest)
        third.get_job_execution_result(timedelta(seconds=60))
    finally:
        second.cancel()
    assert found(numbers) == list(range(ROWS)), "and a key that came twice would have failed it"
