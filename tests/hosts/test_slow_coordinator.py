"""What takes long beside the driver: a disk or an enumerator that hangs holds up nobody else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import config, environment, strom_threads, until, within
from strom import JobStatus
from strom.api.connectors.base import SplitEnumerator
from strom.checkpoint.file_storage import FileStorage
from strom.connectors.datagen import DataGenSource
from strom.engine.coordinator.job_master import JobMaster


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    until(lambda: not strom_threads(), "the end of the job's threads", 10.0)


class Gate:
    """Calls of a method wait here until the test lets them go."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.entered.set()
        assert self.open.wait(30.0)

    def __reduce__(self) -> Any:
        """A source must pickle; the local host uses it as it is."""
        return Gate, ()


@contextmanager
def gate(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> Iterator[Gate]:
    """Each call of the method waits before it does anything; all go on in the end."""
    waiting, original = Gate(), getattr(owner, method)

    def slow(self: Any, *args: Any, **options: Any) -> Any:
        waiting.wait()
        return original(self, *args, **options)

    monkeypatch.setattr(owner, method, slow)
    try:
        yield waiting
    finally:
        waiting.open.set()


def endless(settings: Any, source: Any = None) -> Any:
    """A started job that ends only by being cancelled."""
    env = environment(settings)
    numbers = DataGenSource(lambda start, n: list(range(start, start + n)))
    env.from_source(source or numbers).sink_to(strom.DiscardSink())
    return env.execute_async("endless")


@pytest.mark.parametrize("method", ["publish", "delete", "list"])
def test_a_cancel_is_heard_while_the_storage_hangs(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing the second checkpoint, deleting the first, or looking for one at the start."""
    with gate(monkeypatch, FileStorage, method) as storage:
        client = endless(config(tmp_path, interval_ms=5, retained=1, cancellation_s=6.0))
        assert storage.entered.wait(10.0)
        started = time.monotonic()
        client.cancel()
        # Half of the cancellation timeout for the checkpoint's sake, then two seconds for the rest.
        assert time.monotonic() - started < 5.9
        assert client.get_job_status() is JobStatus.CANCELED


def test_records_flow_while_a_checkpoint_is_being_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gate(monkeypatch, FileStorage, "publish") as storage:
        client = endless(config(tmp_path, interval_ms=5, cancellation_s=8.0))
        assert storage.entered.wait(10.0)
        before = client.metrics()["operators"][0]["records_out"]
        until(lambda: client.metrics()["operators"][0]["records_out"] > before + 1000, "records")
        assert client.metrics()["checkpoints"]["completed"] == 0
        storage.open.set()
        until(lambda: client.metrics()["checkpoints"]["completed"] > 0, "a checkpoint")
        within(5.0, "cancel", client.cancel)


class Thinking(DataGenSource):
    """A source whose enumerator thinks about its second split."""

    def __init__(self, where: str, gate: Gate) -> None:
        # Only one that closes has to run until then: a count would let it finish before the test.
        count = None if where == "close" else 1000
        super().__init__(lambda start, n: list(range(start, start + n)), count)
        self.where, self.gate = where, gate

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        if self.where == "create":
            self.gate.wait()
        return ThinkingEnumerator(super().create_enumerator(context, restored), self)


class ThinkingEnumerator(SplitEnumerator):
    def __init__(self, real: SplitEnumerator, source: Thinking) -> None:
        self.real, self.source = real, source

    def next_splits(self, subtask: int) -> Any:
        self.think("next_splits")
        return self.real.next_splits(subtask)

    def snapshot(self) -> Any:
        self.think("snapshot")
        return self.real.snapshot()

    def close(self) -> None:
        self.think("close")
        self.real.close()

    def think(self, where: str) -> None:
        if self.source.where == where:
            self.source.gate.wait()


@pytest.mark.parametrize("where", ["create", "next_splits", "snapshot", "close"])
def test_a_cancel_is_heard_while_an_enumerator_hangs(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    thinking = Gate()
    try:
        client = endless(config(interval_ms=5, cancellation_s=8.0), Thinking(where, thinking))
        if where != "close":
            assert thinking.entered.wait(10.0)
        else:
            until(lambda: client.get_job_status() is JobStatus.RUNNING, "a running job")
        started = time.monotonic()
        client.cancel()
        assert time.monotonic() - started < 4.5
        assert client.get_job_status() is JobStatus.CANCELED
        assert "is over, but its storage or a source still works" in caplog.text
    finally:
        thinking.open.set()


def test_state_and_metrics_never_wait_for_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    client = endless(config(interval_ms=50))
    until(lambda: client.metrics()["operators"][0]["records_out"] > 0, "records")
    with gate(monkeypatch, JobMaster, "on_tick") as master:
        assert master.entered.wait(10.0)
        assert within(1.0, "the state", client.get_job_status) is JobStatus.RUNNING
        assert within(1.0, "the metrics", client.metrics)["state"] == "RUNNING"
    within(5.0, "cancel", client.cancel)


def test_a_job_that_finished_has_deleted_what_it_does_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting takes longer than the rest of the job: the end waits for it."""
    delete: Callable[..., None] = FileStorage.delete

    def slow(self: Any, checkpoint_id: Any) -> None:
        time.sleep(0.1)
        delete(self, checkpoint_id)

    monkeypatch.setattr(FileStorage, "delete", slow)
    env = environment(config(tmp_path, interval_ms=5, retained=1))
    source = DataGenSource(lambda start, n: list(range(start, start + n)), 400, rate=400.0)
    env.from_source(source).sink_to(strom.DiscardSink())
    result = env.execute("finishing")
    assert result.checkpoints > 3
    assert len(list(tmp_path.glob("*/chk-*"))) == 1


# --- restore_from ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/nope/chk-1", "/nope/job/chk-1", "file:///nope/job/chk-1"])
def test_a_checkpoint_that_is_not_there_is_named(path: str) -> None:
    """As it was given, in one sentence, and where it was looked for: not below the working
    directory."""
    client = endless(config(restore_from=path))
    with pytest.raises(strom.JobFailedError) as caught:
        within(10.0, "the failure", client.get_job_execution_result)
    text = str(caught.value)
    place = path.removeprefix("file://")
    assert f"restore_from='{path}': there is no complete checkpoint" in text
    assert f"({place}/manifest.json: the file is missing)" in text
    assert str(Path.cwd()) not in text
    assert "\n" not in text


def test_a_checkpoint_of_another_format_is_not_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither when it is asked for, nor for an older one: both versions are named."""
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "job" / "chk-3"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"format": 99, "more": []}')
    client = endless(config(restore_from=str(folder)))
    with pytest.raises(strom.JobFailedError, match="format 99, this strom reads format") as caught:
        within(10.0, "the failure", client.get_job_execution_result)
    assert "\n" not in str(caught.value)
    assert "restart" not in caplog.text
