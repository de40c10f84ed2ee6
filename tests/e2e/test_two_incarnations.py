"""Of two that go on with the same work one alone publishes, however it came to be two."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chaos_kit import until
from strom import JobConfig, JobFailedError, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileCompactStrategy, FileSink

ROWS = 4_000


class Ways:
    """A job that copies numbers into files, begun as often as wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.out = folder / "out"
        self._started: list[Any] = []

    def start(
        self, restore_from: str | None = None, rate: float | None = None, **options: Any
    ) -> Any:
        env = StreamExecutionEnvironment.get_execution_environment(
            JobConfig(parallelism=2, restore_from=restore_from)
        )
        env.enable_checkpointing(timedelta(milliseconds=20), storage=str(self.checkpoints))
        env.get_checkpoint_config().set_num_retained_checkpoints(options.pop("retained", 1))
        source = DataGenSource(
            lambda start, count: [(n,) for n in range(start, start + count)],
            count=ROWS,
            rate=rate,
            schema=pa.schema([("n", pa.int64())]),
        )
        out = options.pop("out", self.out)
        stream = env.from_source(source, None, "numbers").uid("numbers")
        stream.sink_to(FileSink(out, format="jsonl", **options)).uid("files")
        client = env.execute_async("copy")
        self._started.append(client)
        return client

    def slow(self, restore_from: str | None = None, **options: Any) -> Any:
        """One that runs for a long time."""
        return self.start(restore_from, rate=200, **options)

    def newest(self, client: Any, at_least: int = 2) -> str:
        """A checkpoint of a job that runs."""
        until(lambda: client.metrics()["checkpoints"]["completed"] >= at_least, "checkpoints")
        return f"{self.home(client)}/chk-{client.metrics()['checkpoints']['last_id']}"

    def last(self, client: Any) -> str:
        """That of a job that is over."""
        (found,) = (path.parent for path in self.home(client).glob("chk-*/manifest.json"))
        return str(found)

    def home(self, client: Any) -> Path:
        return self.checkpoints / str(client.get_job_id())

    def rows(self) -> list[int]:
        files = self.out.rglob("part-*.jsonl")
        return sorted(json.loads(line)["n"] for f in files for line in f.read_text().splitlines())

    def stop(self) -> None:
        for client in self._started:
            client.cancel()


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[Ways]:
    made = Ways(tmp_path)
    yield made
    made.stop()


@contextmanager
def failing(*said: str) -> Iterator[None]:
    with pytest.raises(JobFailedError) as raised:
        yield
    for text in said:
        assert text in str(raised.value)


def result(client: Any) -> Any:
    return client.get_job_execution_result(timedelta(seconds=60))


def test_an_orphan_publishes_nothing_once_another_has_started_from_it(ways: Ways) -> None:
    """From its newest checkpoint, or from one that it has left behind."""
    orphan = ways.slow(retained=3)
    ways.newest(orphan)
    second = ways.slow(str(ways.home(orphan)))
    with failing(f"({second.get_job_id()}, process"):
        result(orphan)
    chk = ways.newest(second)
    until(lambda: chk not in map(str, ways.home(second).glob("chk-*")), "its removal")
    with failing(f"{chk}': its job has removed it", f"give {ways.home(second)}"):
        result(ways.start(chk))
    third = ways.start(str(ways.home(second)))
    result(third)
    assert ways.rows() == list(range(ROWS))
    with failing(f"({third.get_job_id()}, process"):
        result(second)
    assert ways.rows() == list(range(ROWS))


def test_one_checkpoint_restored_twice_publishes_once(ways: Ways) -> None:
    """The later of two that run is right, and takes back what the former has published; of one that
    is finished the output stays, unless that is asked for."""
    first = ways.slow()
    ways.newest(first)
    first.cancel()
    chk = ways.last(first)
    former = ways.slow(chk)
    ways.newest(former)
    later = ways.start(chk)
    result(later)
    assert ways.rows() == list(range(ROWS))
    with failing(str(former.get_job_id()), f"({later.get_job_id()}, process"):
        result(former)
    with failing("of later output are published already", str(later.get_job_id())):
        result(ways.start(chk))
    assert ways.rows() == list(range(ROWS))
    result(ways.start(chk, take_over=True))
    assert ways.rows() == list(range(ROWS))


def test_a_savepoint_fences_no_job_but_what_it_writes_to(ways: Ways) -> None:
    """Copies of a checkpoint, likewise: several jobs may start from one, each into a folder of its
    own."""
    first = ways.slow()
    ways.newest(first)
    saved = first.trigger_savepoint(str(ways.folder / "saved")).result()
    result(ways.start(saved, out=ways.folder / "elsewhere"))
    assert first.get_job_status() == "RUNNING"
    second = ways.start(saved)
    result(second)
    with failing("nothing is published", f"job {first.get_job_id()}", str(second.get_job_id())):
        result(first)
    assert ways.rows() == list(range(ROWS))


def test_a_folder_is_refused_to_a_job_that_does_not_continue_its_owner(ways: Ways) -> None:
    """Unless that is asked for by name, or the owner is over: then files are added."""
    owner = ways.slow()
    ways.newest(owner)
    with failing("belongs to job 'copy'", str(owner.get_job_id()), "take_over=True"):
        result(ways.start())
    assert owner.get_job_status() == "RUNNING"
    other = ways.start(take_over=True)
    result(other)
    with failing("nothing is published", str(owner.get_job_id()), str(other.get_job_id())):
        result(owner)
    rows = len(ways.rows())
    result(ways.start())
    assert len(ways.rows()) == rows + ROWS


def test_a_run_that_begins_anew_is_told_where_it_could_go_on(
    ways: Ways, caplog: pytest.LogCaptureFixture
) -> None:
    first = ways.slow()
    ways.newest(first)
    first.cancel()
    until(ways.rows, "output")
    anew = ways.slow()
    ways.newest(anew)
    anew.cancel()
    (told,) = re.findall(r"earlier run of this job.*restore_from='([^']+)'", caplog.text)
    assert told.endswith(str(first.get_job_id()))
    before = ways.rows()
    assert before.count(0) == 2, "its rows are there, beside those of the first"
    result(ways.start(told))
    assert sorted({*ways.rows()}) == list(range(ROWS))


def test_what_compacts_cannot_take_back_and_is_refused(ways: Ways) -> None:
    merged = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
    first = ways.slow(compact=merged, retained=50)
    ways.newest(first, 8)
    first.cancel()
    until(ways.rows, "output")
    oldest = min(ways.home(first).glob("chk-*"), key=lambda chk: int(chk.name[4:]))
    with failing("merges files, which cannot be taken back"):
        result(ways.start(str(oldest), compact=merged))
    result(ways.start(str(ways.home(first)), compact=merged))
    assert ways.rows() == list(range(ROWS))
