"""Checkpoints that are torn, altered, gone, or cannot be written: noticed, named, never guessed
around. A job goes back to an older checkpoint only where its output stays exact."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
import strom
from chaos_kit import (
    KEYS,
    PAIRS,
    ListSink,
    as_window_sums,
    config,
    environment,
    failure,
    pairs,
    strom_threads,
    until,
    window_sums,
    windowed,
    windows_of,
    within,
)
from fsspec.implementations.local import LocalFileSystem
from strom.api.connectors.base import Emit, Polled, ReaderContext, SourceReader, Wait
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileCompactStrategy, ParquetSink
from strom.core.clock import Clock

COUNT = 1500
RATE = 3000.0


def manifests(folder: str | Path) -> list[str]:
    """Those of all jobs below `folder`, by ascending checkpoint id."""
    found = glob.glob(f"{folder}/*/chk-*/manifest.json")
    return sorted(found, key=number)


def number(manifest: str) -> int:
    """The checkpoint's id."""
    return int(re.findall(r"chk-(\d+)", manifest)[-1])


def data_file(manifest: str) -> str:
    """The largest data file of the checkpoint."""
    return max(glob.glob(f"{os.path.dirname(manifest)}/*.arrow"), key=os.path.getsize)


def flip(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def truncate(path: str) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


def empty(path: str) -> None:
    os.truncate(path, 0)


def scribble(path: str) -> None:
    Path(path).write_bytes(b"\x00not what it was\xff" * 7)


Damage = tuple[Callable[[str], Any], Callable[[str], str]]

DAMAGE: dict[str, Damage] = {
    f"{what.__name__} {where}": (what, find)
    for where, find in (("data", data_file), ("manifest", lambda manifest: manifest))
    for what in (flip, truncate, empty, scribble, os.remove)
}
"""What is done, and to which file of a checkpoint (given by its manifest)."""


def read(folder: Path) -> list[Any]:
    files = glob.glob(f"{folder}/**/*.parquet", recursive=True)
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted((r["key"], r["window_start"], r["n"], r["total"]) for r in rows)


# --- between jobs ----------------------------------------------------------------------------


def stop(client: Any) -> None:
    """Cancel it, and wait until nothing of it writes any more, however busy the machine is."""
    within(130.0, "cancel", lambda: client.cancel(timedelta(minutes=2)))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `state` and `out` of a job that was cancelled after some checkpoints."""
    folder = tmp_path_factory.mktemp("stopped")
    env = environment(config(folder / "state", interval_ms=20))
    windowed(env, 100_000, RATE).sink_to(ParquetSink(folder / "out"))
    client = env.execute_async("first")
    until(lambda: len(manifests(folder / "state")) >= 3 and glob.glob(f"{folder}/out/*"), "output")
    stop(client)
    return folder


def copy_of(stopped: Path, tmp_path: Path) -> tuple[list[str], Path]:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return manifests(tmp_path / "state"), tmp_path / "out"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_job_does_not_start_from_a_damaged_checkpoint(
    damage: str, stopped: Path, tmp_path: Path
) -> None:
    """Also with a restart strategy that never gives up: trying again would not help."""
    found, _ = copy_of(stopped, tmp_path)
    what, find = DAMAGE[damage]
    path = find(found[-1])
    what(path)
    settings = config(tmp_path / "second", interval_ms=20, restore_from=os.path.dirname(found[-1]))
    text = failure(windowed(environment(settings), COUNT, None), 10.0)
    gone = damage == "remove manifest"
    assert ("there is no complete checkpoint" if gone else "CorruptCheckpointError") in text
    assert path in text


def test_the_one_before_can_be_started_from(stopped: Path, tmp_path: Path) -> None:
    found, _ = copy_of(stopped, tmp_path)
    flip(data_file(found[-1]))
    before = found[-2]
    settings = config(tmp_path / "second", interval_ms=20, restore_from=os.path.dirname(before))
    env = environment(settings)
    windowed(env, 100_000, RATE).sink_to(strom.DiscardSink())
    client = env.execute_async("second")
    figures = until(lambda: (m := client.metrics())["checkpoints"]["completed"] and m, "running")
    stop(client)
    assert figures["checkpoints"]["restored_from"] == number(before)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_cancelled_job_is_continued_exactly(
    parallelism: int, stopped: Path, tmp_path: Path
) -> None:
    """What the first job published up to its last checkpoint, and what the second, which is also
    cancelled, adds: of each key no window twice, none wrong, none left out before the last. (When a
    job is cancelled one subtask may have committed a checkpoint that another has not yet.)"""
    found, out = copy_of(stopped, tmp_path)
    before = len(read(out))
    settings = config(
        tmp_path / "second",
        parallelism=parallelism,
        interval_ms=20,
        restore_from=os.path.dirname(found[-1]),
    )
    env = environment(settings)
    windowed(env, 100_000, 50_000.0).sink_to(ParquetSink(out))
    client = env.execute_async("second")
    until(lambda: len(read(out)) >= before + 100, "more output")
    stop(client)
    written, expected = read(out), window_sums(100_000)
    for key in range(KEYS):
        mine = [row for row in written if row[0] == key]
        assert mine == [row for row in expected if row[0] == key][: len(mine)]


@pytest.mark.parametrize("path", ["nowhere/job/chk-1", "nowhere", "nowhere/job/chk-x", ""])
def test_a_checkpoint_that_is_not_there(path: str, tmp_path: Path) -> None:
    settings = config(tmp_path / "state", interval_ms=20, restore_from=str(tmp_path / path))
    text = failure(windowed(environment(settings), COUNT, None), 10.0)
    assert str(tmp_path / path) in text


# --- within one job --------------------------------------------------------------------------


SHARE = 100
"""Records a subtask reads per checkpoint until the sabotage, so that each publishes something."""


class Sabotaged(DataGenSource):
    """A reader that is to take part in a checkpoint when three are complete damages the newest
    `count` of these and raises; once. So no further one can complete before the failure."""

    def __init__(self, folder: Path, damage: str, count: int) -> None:
        super().__init__(pairs, COUNT, splits=2, schema=PAIRS, block=20)
        self.folder = str(folder)
        self.marker = f"{folder}/sabotaged"
        self.damage = damage
        self.count = count

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _SabotagedReader(super().create_reader(context), self, context.clock)

    def act(self) -> None:
        what, find = DAMAGE[self.damage]
        found = manifests(self.folder)
        Path(self.marker).write_text("\n".join(found))
        for manifest in found[-self.count :]:
            what(find(manifest))
        raise RuntimeError("sabotage")


class _SabotagedReader(SourceReader):
    def __init__(self, reader: SourceReader, source: Sabotaged, clock: Clock) -> None:
        self.reader = reader
        self.source = source
        self.clock = clock
        self.read = 0

    def add_splits(self, splits: Any) -> None:
        self.reader.add_splits(splits)

    def snapshot(self) -> Any:
        if not os.path.exists(self.source.marker) and self.complete() >= 3:
            self.source.act()
        return self.reader.snapshot()

    def complete(self) -> int:
        return max(map(number, manifests(self.source.folder)), default=0)

    def poll(self) -> Polled:
        ahead = self.read >= SHARE * (self.complete() + 1)
        if ahead and not os.path.exists(self.source.marker):
            return Wait(self.clock.now_ms() + 2)
        polled = self.reader.poll()
        self.read += len(polled.batch) if isinstance(polled, Emit) else 0
        return polled


def sabotaged(tmp_path: Path, damage: str, count: int = 1) -> Any:
    """The stream of a job that loses its newest `count` checkpoints and a reader."""
    env = environment(config(tmp_path, interval_ms=10, batch_size=20))
    return windows_of(env, Sabotaged(tmp_path, damage, count))


def checkpoints_at_sabotage(tmp_path: Path) -> list[str]:
    return (tmp_path / "sabotaged").read_text().splitlines()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_running_job_goes_back_one_more_where_the_sink_can(damage: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stream = sabotaged(tmp_path, damage)
    stream.sink_to(ParquetSink(out))
    client = stream.get_execution_environment().execute_async("sabotaged")
    result = within(20.0, "the job", client.get_job_execution_result)
    assert result.restarts == 1
    before = checkpoints_at_sabotage(tmp_path)[-2]
    assert result.metrics["checkpoints"]["restored_from"] == number(before)
    assert read(out) == window_sums(COUNT)


def test_a_running_job_goes_back_two(tmp_path: Path) -> None:
    out = tmp_path / "out"
    stream = sabotaged(tmp_path, "flip data", 2)
    stream.sink_to(ParquetSink(out))
    client = stream.get_execution_environment().execute_async("sabotaged")
    assert within(20.0, "the job", client.get_job_execution_result).restarts == 1
    assert read(out) == window_sums(COUNT)


@pytest.mark.parametrize("damage", ["flip data", "remove manifest"])
def test_a_job_whose_sink_cannot_take_back_fails_instead(damage: str, tmp_path: Path) -> None:
    """Going back would publish again what the client has: the error says so, and what to do."""
    text = failure(sabotaged(tmp_path, damage).name("sums"), 20.0)
    before, newest = checkpoints_at_sabotage(tmp_path)[-2:]
    assert DAMAGE[damage][1](newest) in text
    assert "'Sink: Collect' cannot take back" in text
    assert f"restore_from at the folder {os.path.basename(os.path.dirname(before))}" in text


def test_a_sink_that_merges_files_cannot_take_back(tmp_path: Path) -> None:
    """A merged file holds records of several checkpoints."""
    stream = sabotaged(tmp_path, "flip data")
    merged = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
    stream.sink_to(ParquetSink(tmp_path / "out", compact=merged)).name("merged")
    client = stream.get_execution_environment().execute_async("sabotaged")
    with pytest.raises(strom.JobFailedError, match="'merged' cannot take back"):
        within(20.0, "the job", client.get_job_execution_result)


def test_without_any_usable_checkpoint_a_job_fails_and_does_not_begin_anew(tmp_path: Path) -> None:
    stream = sabotaged(tmp_path, "flip data", 3)
    stream.sink_to(ParquetSink(tmp_path / "out"))
    client = stream.get_execution_environment().execute_async("sabotaged")
    with pytest.raises(strom.JobFailedError) as caught:
        within(20.0, "the job", client.get_job_execution_result)
    text = str(caught.value)
    assert "CorruptCheckpointError" in text or "expected xxh64" in text
    for manifest in checkpoints_at_sabotage(tmp_path)[-3:]:
        assert os.path.dirname(manifest) in text


# --- checkpoints that cannot be written --------------------------------------------------------


class FullDisk(LocalFileSystem):
    """A local filesystem without space for state files as long as `<root>/full` exists."""

    protocol = ("full",)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "w" in mode and os.path.exists(re.sub(r"/state/.*", "/full", path)):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super()._open(path, mode, **options)


fsspec.register_implementation("full", FullDisk, clobber=True)


@pytest.mark.parametrize("tolerable", [0, 3])
def test_as_many_failed_checkpoints_as_tolerable(tolerable: int, tmp_path: Path) -> None:
    (tmp_path / "full").touch()
    settings = config(
        f"full://{tmp_path}/state", interval_ms=5, tolerable=tolerable, restart=strom.NoRestart()
    )
    text = failure(windowed(environment(settings), None, RATE))
    count = f"{tolerable + 1} in a row, " if tolerable else ""
    assert f"({count}tolerable_failures is {tolerable})" in text
    assert "No space left on device" in text
    assert f"{tmp_path}/state" in text


def test_a_terminal_checkpoint_is_tried_ever_more_seldom_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full for two seconds refuses the last checkpoint a few times, not hundreds of
    times; the log says so once."""
    (tmp_path / "full").touch()
    settings = config(f"full://{tmp_path}/state", tolerable=10_000)
    client = as_discarded(windowed(environment(settings), COUNT, None)).execute_async("full")
    until(lambda: client.metrics()["checkpoints"]["failed"] >= 2, "failures")
    threading.Event().wait(2.0)
    os.remove(tmp_path / "full")
    within(15.0, "the job", client.get_job_execution_result)
    assert 3 <= client.metrics()["checkpoints"]["failed"] <= 9
    said = [r.getMessage() for r in caplog.records if "No space left on device" in r.getMessage()]
    assert len(said) == 1
    assert "until one completes, others that fail for this cause are not logged" in said[0]


def as_discarded(stream: Any) -> Any:
    """The environment of a program that ends in this stream."""
    stream.sink_to(strom.DiscardSink())
    return stream.get_execution_environment()


@pytest.mark.parametrize("where", ["a file", "a folder of a file"])
def test_an_impossible_folder(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" if where == "a file" else tmp_path / "file" / "state"
    settings = config(folder, interval_ms=5, restart=strom.NoRestart())
    assert str(folder) in failure(windowed(environment(settings), None, RATE))


class Cleaner(strom.MapFunction):
    """Makes space after a while."""

    def __init__(self, full: Path) -> None:
        self.full = str(full)

    def map(self, row: Any) -> Any:
        if row.value == COUNT // 2 and os.path.exists(self.full):
            os.remove(self.full)
        return row


def test_a_job_survives_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    (tmp_path / "full").touch()
    settings = config(f"full://{tmp_path}/state", interval_ms=5, tolerable=10_000)
    stream = windowed(environment(settings), COUNT, RATE, behind_source=Cleaner(tmp_path / "full"))
    results = stream.execute_and_collect()
    assert as_window_sums(within(20.0, "the job", lambda: list(results))) == window_sums(COUNT)
    checkpoints = results.client.metrics()["checkpoints"]
    assert checkpoints["failed"] >= 1
    assert checkpoints["completed"] >= 1
    assert glob.glob(f"{tmp_path}/state/*/*/*.tmp") == []


class Upload:
    """In the background of a checkpoint: says that it has begun, and lasts until it may end."""

    def __init__(self, folder: Path) -> None:
        self.begun, self.end = str(folder / "begun"), str(folder / "end")

    def __call__(self) -> None:
        Path(self.begun).touch()
        until(lambda: os.path.exists(self.end), "the end of the upload")


def test_a_cancelled_job_leaves_no_checkpoint_half_done(tmp_path: Path) -> None:
    """Cancelled while the source's part is written and the sink's is under way."""
    env = environment(config(tmp_path / "state", interval_ms=100, parallelism=1, chaining=False))
    source = DataGenSource(pairs, None, rate=RATE, schema=PAIRS, block=20)
    stream = env.from_source(source, strom.WatermarkStrategy.no_watermarks(), source_name="paced")
    stream.sink_to(ListSink("prepare_commit in the background", Upload(tmp_path)))
    client = env.execute_async("cancelled")
    until((tmp_path / "begun").exists, "an upload")
    until(lambda: glob.glob(f"{tmp_path}/state/*/chk-1/*"), "the other tasks' files")
    stop(client)
    (tmp_path / "end").touch()
    until(lambda: not strom_threads(), "the end of the upload")
    assert glob.glob(f"{tmp_path}/state/*/chk-*") == []
