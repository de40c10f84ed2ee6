"""What is kept for a moment: who asks, how often, what becomes of failures and of who waits."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rest_kit import view_of_a_job
from strom.rest.catalogs import caches
from strom.rest.catalogs.caches import KeptViews, SharedAnswers
from strom.rest.catalogs.catalog import Unavailable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(caches, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_failure_is_told_for_as_long_as_it_took(clock: SimpleNamespace) -> None:
    answers: SharedAnswers[int] = SharedAnswers()
    asked: list[float] = []

    def hangs() -> int:
        asked.append(clock.now)
        clock.now += 5.0
        raise Unavailable("it hangs")

    for _ in range(3):
        with pytest.raises(Unavailable, match="it hangs"):
            answers.get("a", hangs)
    assert asked == [100.0]
    assert answers.get("b", lambda: 1) == 1
    clock.now += 4.9
    with pytest.raises(Unavailable):
        answers.get("a", lambda: 2)
    clock.now += 0.2
    assert answers.get("a", lambda: 3) == 3


def test_a_failure_that_comes_at_once_is_told_for_a_moment(clock: SimpleNamespace) -> None:
    answers: SharedAnswers[int] = SharedAnswers()

    def fails() -> int:
        raise Unavailable("no")

    with pytest.raises(Unavailable):
        answers.get("a", fails)
    with pytest.raises(Unavailable):
        answers.get("a", lambda: 2)
    clock.now += caches.FRESH_S
    assert answers.get("a", lambda: 3) == 3


def test_what_nobody_answers_is_not_remembered_for_ever(clock: SimpleNamespace) -> None:
    answers: SharedAnswers[int] = SharedAnswers()

    def fails() -> int:
        raise Unavailable("no")

    for key in range(100):
        with pytest.raises(Unavailable):
            answers.get(key, fails)
        clock.now += caches.FRESH_S
    assert len(answers._failed) == 1
    assert len(answers._asking) <= 1


def test_nobody_waits_for_long_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "WAIT_S", 0.01)
    answers: SharedAnswers[int] = SharedAnswers()
    begun, go = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert go.wait(60)
        return 7

    asking = threading.Thread(target=answers.get, args=("a", slow))
    asking.start()
    assert begun.wait(60)
    with pytest.raises(Unavailable, match="ask again"):
        answers.get("a", lambda: 8)
    assert answers.get("b", lambda: 9) == 9
    go.set()
    asking.join(60)
    assert answers.known("a") == 7


# --- views ---------------------------------------------------------------------------------------


class Asked:
    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None

    def __call__(self) -> Any:
        self.count += 1
        if self.failure is not None:
            raise self.failure
        return view_of_a_job()


def test_a_job_that_runs_is_asked_now_and_then(clock: SimpleNamespace) -> None:
    views, asked = KeptViews(), Asked()
    for _ in range(5):
        views.get("a", False, asked)
    assert asked.count == 1
    clock.now += caches.FRESH_S
    views.get("a", False, asked)
    assert asked.count == 2
    views.forget("a")
    views.get("a", False, asked)
    assert asked.count == 3


def test_what_was_known_of_a_job_that_ran_is_not_its_last_view(clock: SimpleNamespace) -> None:
    views, asked = KeptViews(), Asked()
    views.get("a", False, asked)
    views.get("a", True, asked)
    clock.now += 1000
    views.get("a", True, asked)
    assert asked.count == 2
    assert views.known("a") is None


def test_room_for_views_is_bounded(clock: SimpleNamespace) -> None:
    views, asked = KeptViews(), Asked()
    for i in range(caches.MOST_ENDED + 1):
        views.get(str(i), True, asked)
    views.get("1", True, asked)
    assert asked.count == caches.MOST_ENDED + 1
    views.get("0", True, asked)
    assert asked.count == caches.MOST_ENDED + 2


def test_many_ask_at_once_and_one_is_sent() -> None:
    views, asked = KeptViews(), Asked()
    go = threading.Barrier(8)
    found: list[Any] = []

    def look() -> None:
        go.wait(30)
        found.append(views.get("a", True, asked))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (asked.count, len(found)) == (1, 8)
