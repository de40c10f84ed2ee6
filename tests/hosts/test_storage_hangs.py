"""A storage that hangs for ever in one call: the checkpoint fails by its timeout, others complete,
and what comes through after all is taken back. A storage that hangs in every call starts no threads
without end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, strom_threads, until, within
from strom import DiscardSink, JobStatus
from strom.checkpoint.file_storage import FileStorage
from strom.connectors.datagen import DataGenSource
from strom.core.clock import VirtualClock
from strom.engine.hosts.ordered_work import MOST_LEFT, OrderedWork, Piece
from strom.engine.task.background import SteppedBackground


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    until(lambda: not strom_threads(), "the end of the job's threads", 10.0)


class Gate:
    """Chosen calls of a method wait here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, which: set[int]) -> None:
        self.open = threading.Event()
        self.entered: list[Any] = []
        """What the calls that wait, or have waited, were about."""
        self.returned: list[Any] = []
        self._calls = 0
        original: Callable[..., Any] = getattr(FileStorage, method)

        def slow(storage: Any, what: Any) -> Any:
            self._calls += 1
            waits = self._calls in which
            if waits:
                self.entered.append(getattr(what, "checkpoint_id", what))
                assert self.open.wait(60.0)
            try:
                return original(storage, what)
            finally:
                if waits:
                    self.returned.append(what)

        monkeypatch.setattr(FileStorage, method, slow)


def endless(folder: Path, timeout_s: float, **settings: Any) -> Any:
    job = config(folder, interval_ms=20, retained=1, parallelism=1, **settings)
    timeout = timedelta(seconds=timeout_s)
    env = environment(replace(job, checkpoint=replace(job.checkpoint, timeout=timeout)))
    numbers = DataGenSource(lambda start, n: list(range(start, start + n)), rate=1000.0)
    env.from_source(numbers).sink_to(DiscardSink())
    return env.execute_async("endless")


def folders(root: Path) -> set[str]:
    return {path.name for path in root.glob("*/chk-*")}


@pytest.mark.parametrize("method", ["publish", "delete"])
def test_one_call_that_hangs_costs_at_most_its_own_checkpoint(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = Gate(monkeypatch, method, {2})
    client = endless(tmp_path, 2.0, tolerable=99, cancellation_s=8.0)

    def figures() -> dict[str, Any]:
        return dict(client.metrics()["checkpoints"])

    try:
        until(lambda: bool(gate.entered), "the call that hangs")
        stuck = gate.entered[0]
        before = figures()["completed"]
        until(lambda: figures()["completed"] > before + 4, "others that complete", 20.0)
        assert not gate.returned
        failed = figures()["failed"]
        if method == "publish":
            assert failed >= 1
            assert f"chk-{stuck}" in folders(tmp_path), "what it may need is not removed"
            assert "the checkpoint storage did not answer" in caplog.text
            word = f"nobody waits any more for its storage: publishing checkpoint {stuck} for"
        else:
            assert failed == 0
            assert f"chk-{stuck}" not in folders(tmp_path), "it is removed with the next one"
            word = f"its storage hangs: removing checkpoint {stuck} for"
        assert word in caplog.text
        gate.open.set()
        until(lambda: bool(gate.returned), "what had hung")
        until(lambda: f"chk-{stuck}" not in folders(tmp_path), "its removal")
        until(lambda: "what had hung came back" in caplog.text, "the word of it")
    finally:
        gate.open.set()
        within(20.0, "the end", client.cancel)


def test_a_job_restarts_while_a_publication_hangs_and_ends_though_it_never_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No failure is tolerated: the job goes back to the checkpoint before, and goes on."""
    gate = Gate(monkeypatch, "publish", {2})
    client = endless(tmp_path, 0.5, tolerable=0, cancellation_s=8.0)
    try:
        until(lambda: client.metrics()["restarts"] == 1, "the restart")
        restored = lambda: client.metrics()["checkpoints"]["restored_from"]
        until(lambda: restored() is not None, "the checkpoint before")
        assert restored() < gate.entered[0]
        until(lambda: client.metrics()["checkpoints"]["completed"] > 4, "others that complete")
        within(6.0, "the end", client.cancel)
        assert client.get_job_status() is JobStatus.CANCELED
        assert "its storage never answered: publishing checkpoint" in caplog.text
    finally:
        gate.open.set()


def test_where_every_call_hangs_a_few_threads_do_and_it_goes_on_when_they_come_back() -> None:
    clock, workers = VirtualClock(), list[SteppedBackground]()

    def make() -> SteppedBackground:
        workers.append(SteppedBackground())
        return workers[-1]

    work = OrderedWork("job j", make, clock)
    for n in range(10):
        work.submit(Piece(f"piece {n}", lambda n=n: n, n, limit_ms=100))  # type: ignore[misc]
    for _ in range(20):
        clock.advance_ms(100)
        work.on_time()
        work.validate()
    assert [piece.key for piece in work.left] == list(range(MOST_LEFT))
    assert work.due_ms() is None
    assert sum(worker.busy for worker in workers) == MOST_LEFT
    assert len(workers) == MOST_LEFT + 1
    # One that is not wanted any more never begins; one that comes back lets the next one begin.
    assert not work.leave(5)
    heard = []
    while any(worker.busy for worker in workers):
        next(worker for worker in workers if worker.busy).step()
        piece, result, error = work.answers.popleft()
        assert error is None
        heard.append(result)
        work.over(piece)
        work.validate()
    assert sorted(heard) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert not work.left


def test_what_has_just_begun_when_it_is_not_wanted_any_more_does_not_hang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The time of its checkpoint went elsewhere."""
    clock = VirtualClock()
    work = OrderedWork("job j", SteppedBackground, clock)
    work.submit(Piece("publishing checkpoint 3", lambda: None, 3))
    assert work.leave(3)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "job j: nobody waits any more for its storage: publishing checkpoint 3 for 0.0 s, left "
        "behind; it is heard of if it comes back"
    )
    work.close(0.0)
