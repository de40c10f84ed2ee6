"""What watches a query, with a query that a test moves: it ends, fails, or its Spark is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from strom.connectors.spark import spooling
from strom.connectors.spark.spool import ENDED, FAILED, RUNNING, Spool, SpoolState
from strom.connectors.spark.spooling import QuerySettings, Spooling


class Query:
    """In Spark's place: `isActive` and `exception()` are what a test says."""

    id = "query-1"

    def __init__(self) -> None:
        self.isActive = True
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self.isActive = False


class Site:
    """A spooling whose queries are in `queries`, the running one last."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, kept: bool = False) -> None:
        self.queries: list[Query] = []
        self.alive = True
        monkeypatch.setattr(spooling, "_LOOK_S", 0.002)
        monkeypatch.setattr(spooling, "_PAUSES_S", (0.0, 0.0))
        monkeypatch.setattr(spooling, "alive", lambda session: self.alive)
        monkeypatch.setattr(Spooling, "_begin", lambda _: self._begin())
        self.spool = Spool(folder / "spool")
        self.spool.declare("{}")
        context = SimpleNamespace(defaultParallelism=2)
        frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
        self.spooling = Spooling(frame, self.spool, QuerySettings(), kept)

    def _begin(self) -> Query:
        self.queries.append(Query())
        return self.queries[-1]

    def over(self) -> SpoolState:
        """The last state, once nobody watches any more."""
        self.until(lambda: not self.spooling.running)
        state = self.spool.state()
        assert state is not None
        return state

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 80
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_a_query_that_ends_is_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, monkeypatch)
    site.spooling.start()
    first = site.spool.state()
    assert first is not None
    assert first.state == RUNNING
    site.until(lambda: site.spool.state() != first)  # it beats
    site.queries[-1].end()
    assert site.over().state == ENDED
    assert site.spool.query_id() == "query-1"


def test_a_query_is_started_again_until_it_fails_too_often_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, monkeypatch)
    site.spooling.start()
    for n in range(1, 6):
        site.spooling._published = 1  # it got somewhere: failures are counted anew
        site.queries[-1].end(RuntimeError("now and then"))
        site.until(lambda n=n: len(site.queries) > n)
    for n in range(6, 8):
        site.queries[-1].end(RuntimeError("Caused by: disk full"))
        if n < 7:
            site.until(lambda n=n: len(site.queries) > n)
    state = site.over()
    assert (state.state, state.message) == (FAILED, "3 times in a row: disk full")


@pytest.mark.parametrize(("kept", "expected"), [(False, FAILED), (True, RUNNING)])
def test_a_session_that_is_lost_takes_its_queries_along_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, expected: str
) -> None:
    """Spark says that the query ended; it did not. Who keeps it starts it again."""
    site = Site(tmp_path, monkeypatch, kept)
    site.spooling.start()
    site.alive = False
    site.queries[-1].end()
    assert site.over().state == expected


def test_what_spark_says_of_a_failure_is_told_by_its_cause() -> None:
    java = (
        "Job aborted\n\tat a.b(C.java:1)\nCaused by: a.B: one\n\tat x\nCaused by: c.D: two\n\tat y"
    )
    assert spooling._line(RuntimeError(java)) == "c.D: two"
    python = (
        "Return Message: Traceback (most recent call last):\n  File 'x', line 1, in f\n"
        "FileExistsError: [Errno 17] File exists\n\tat py4j.Protocol\n=== Streaming Query ==="
    )
    assert spooling._line(RuntimeError(python)) == "FileExistsError: [Errno 17] File exists"
    assert spooling._line(RuntimeError("cannot resolve 'x'\n=== Streaming")) == "cannot resolve 'x'"


def test_a_micro_batch_that_waits_for_room_ends_with_its_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's `stop()` waits for it; and it raises, so that nothing is committed unwritten."""
    site = full(tmp_path, monkeypatch)
    threading.Timer(0.1, site.queries[-1].end).start()
    with pytest.raises(RuntimeError, match="stopped before micro-batch 7 had room"):
        site.spooling._write(SimpleNamespace(), 7)
    assert site.over().state == ENDED


def test_a_query_that_is_stopped_is_not_started_again_for_what_the_micro_batch_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = full(tmp_path, monkeypatch)
    query, told = site.queries[-1], threading.Event()
    monkeypatch.setattr(query, "exception", lambda: told.wait(20.0) and query.error)
    query.end()
    with pytest.raises(RuntimeError) as raised:
        site.spooling._write(SimpleNamespace(), 7)
    query.error = raised.value
    told.set()
    assert site.over().state == ENDED
    assert len(site.queries) == 1


def test_a_query_that_was_stopped_says_nothing_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = full(tmp_path, monkeypatch)
    site.spooling._stopped = object()
    site.queries[-1].end(RuntimeError("disk full"))
    site.until(lambda: len(site.queries) > 1)
    site.queries[-1].end()
    assert site.over().state == ENDED


def full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A running one whose spool never has room."""
    monkeypatch.setattr(spooling, "_STOPPED_S", 0.05)
    monkeypatch.setattr(Spool, "waiting", lambda _: 1_000)
    site = Site(folder, monkeypatch)
    site.spooling.start()
    return site
