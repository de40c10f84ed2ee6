"""Connector code that raises, and user code that does not return."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import (
    Always,
    Once,
    config,
    environment,
    failure,
    gather,
    strom_threads,
    until,
    within,
)
from strom import Emit, JobStatus, NeedSplit, Source, SourceReader, SplitEnumerator

RECORDS = 200
SPLITS = 4


class Part:
    """Split `index`: records index, index + SPLITS, ...; read up to `position`."""

    def __init__(self, index: int, position: int = 0) -> None:
        self.index = index
        self.position = position

    @property
    def split_id(self) -> str:
        return str(self.index)


class Tripping(Source):
    """Calls `trip` in the method called `where`."""

    bounded = True

    def __init__(self, where: str, trip: Callable[[], None]) -> None:
        self.where = where
        self.trip = trip

    def at(self, where: str) -> None:
        if where == self.where:
            self.trip()

    def create_enumerator(self, context: Any, restored: Any) -> SplitEnumerator:
        self.at("create_enumerator")
        return _Enumerator(self, list(map(Part, range(SPLITS))) if restored is None else restored)

    def create_reader(self, context: Any) -> SourceReader:
        self.at("create_reader")
        return _Reader(self)


class _Enumerator(SplitEnumerator):
    def __init__(self, source: Tripping, parts: list[Part]) -> None:
        self.source = source
        self.parts = parts

    def next_splits(self, subtask: int) -> Any:
        self.source.at("next_splits")
        return [self.parts.pop()] if self.parts else None

    def snapshot(self) -> Any:
        self.source.at("snapshot of the enumerator")
        if self.source.where == "an enumerator's state that does not pickle":
            return threading.Lock()
        return list(self.parts)

    def close(self) -> None:
        self.source.at("close of the enumerator")


class _Reader(SourceReader):
    def __init__(self, source: Tripping) -> None:
        self.source = source
        self.parts: list[Part] = []

    def add_splits(self, splits: Any) -> None:
        self.source.at("add_splits")
        self.parts += splits

    def poll(self) -> Any:
        if self.source.where == "nonsense from poll":
            return "nonsense"
        if not self.parts:
            return NeedSplit()
        part = self.parts[0]
        if part.position == 20:
            self.source.at("poll")
        number = part.position * SPLITS + part.index
        part.position += 1
        finished = part.position * SPLITS >= RECORDS
        if finished:
            self.parts.pop(0)
        batch = strom.core.batch.ObjectBatch([number])
        return Emit(batch, part.split_id, finished)

    def snapshot(self) -> Any:
        self.source.at("snapshot of the reader")
        return [Part(part.index, part.position) for part in self.parts]

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Any) -> None:
        self.source.at("notify_checkpoint_complete")

    def close(self) -> None:
        self.source.at("close of the reader")


PLACES = (
    "create_enumerator",
    "next_splits",
    "snapshot of the enumerator",
    "create_reader",
    "add_splits",
    "poll",
    "snapshot of the reader",
    "notify_checkpoint_complete",
)


@pytest.mark.parametrize("where", PLACES)
def test_a_raising_source_fails_the_job_and_is_named(where: str) -> None:
    env = environment(config(interval_ms=1, restart=strom.NoRestart()))
    text = failure(env.from_source(Tripping(where, Always()), source_name="the source"))
    assert "operator 'the source'" in text
    assert "RuntimeError: boom, always" in text


@pytest.mark.parametrize("where", PLACES)
def test_a_source_that_raised_once_is_read_exactly(where: str, tmp_path: Path) -> None:
    env = environment(config(interval_ms=1))
    found = gather(env.from_source(Tripping(where, Once(tmp_path)), source_name="the source"))
    assert (tmp_path / "raised").exists()
    assert sorted(found) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("nonsense from poll", "'nonsense', not Emit, Wait or NeedSplit"),
        ("an enumerator's state that does not pickle", "snapshot of its enumerator failed"),
    ],
)
def test_a_source_that_breaks_its_contract(where: str, says: str) -> None:
    env = environment(config(interval_ms=1, restart=strom.NoRestart()))
    text = failure(env.from_source(Tripping(where, Always()), source_name="the source"))
    assert "operator 'the source'" in text
    assert says in text


@pytest.mark.parametrize("where", ["close of the enumerator", "close of the reader"])
def test_a_raising_close_of_a_source_is_logged(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = environment(config(interval_ms=1000))
    found = gather(env.from_source(Tripping(where, Always()), source_name="the source"))
    assert sorted(found) == list(range(RECORDS))
    assert "operator 'the source'" in caplog.text
    assert "boom, always" in caplog.text


# --- code that does not return ----------------------------------------------------------------


def sleeping(entered: Path, pipe: int) -> Callable[[Any], Any]:
    """Blocks in Python code, which can be interrupted."""

    def function(n: Any) -> Any:
        entered.touch()
        while not entered.with_name("released").exists():
            time.sleep(0.002)
        return n

    return function


def stuck(entered: Path, pipe: int) -> Callable[[Any], Any]:
    """Blocks outside the interpreter."""

    def function(n: Any) -> Any:
        entered.touch()
        os.read(pipe, 1)
        return n

    return function


@pytest.mark.parametrize("make", [sleeping, stuck])
@pytest.mark.parametrize("interval_ms", [None, 5])
def test_cancel_returns_though_a_function_does_not(
    make: Any, interval_ms: int | None, tmp_path: Path
) -> None:
    entered = tmp_path / "entered"
    pipe, release = os.pipe()
    function = make(entered, pipe)
    env = environment(config(interval_ms=interval_ms, cancellation_s=0.3))
    env.from_collection(list(range(100))).map(function).sink_to(strom.DiscardSink())
    client = env.execute_async("blocked")
    try:
        until(entered.exists, "the function")
        started = time.monotonic()
        within(5.0, "cancel", client.cancel)
        assert time.monotonic() - started < 2.5
        assert client.get_job_status() is JobStatus.CANCELED
        with pytest.raises(strom.JobCancelledError):
            within(1.0, "the result", client.get_job_execution_result)
        if make is sleeping:
            until(lambda: not strom_threads(), "the end of the interrupted thread", 2.0)
    finally:
        entered.with_name("released").touch()
        os.close(release)
        until(lambda: not strom_threads(), "the end of the thread", 2.0)
        os.close(pipe)


def test_leaving_the_results_early_ends_the_job() -> None:
    from strom.connectors.datagen import DataGenSource

    env = environment(config(interval_ms=10))
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    with env.from_source(source).execute_and_collect() as results:
        assert len([next(results) for _ in range(10)]) == 10
    assert results.client.get_job_status() is JobStatus.CANCELED


def test_results_are_closed_while_another_thread_reads_them() -> None:
    """It ends with what there is, and whoever closes them is told of nothing."""
    from strom.connectors.datagen import DataGenSource

    env = environment(config(interval_ms=10))
    source = DataGenSource(lambda start, n: list(range(start, start + n)), rate=1_000)
    found: list[int] = []
    ended: list[BaseException | None] = []

    def read() -> None:
        try:
            found.extend(results)
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)

    with env.from_source(source).execute_and_collect() as results:
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        until(lambda: results.client.metrics()["checkpoints"]["completed"] > 3, "checkpoints")
    reader.join(60.0)
    assert ended == [None]
    assert len(set(found)) == len(found) > 0
