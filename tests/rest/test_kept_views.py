"""Views that are kept for a moment: who asks, how often, and what becomes of failures."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rest_kit import view_of_a_job
from strom.rest import kept_views as module
from strom.rest import shared_answers
from strom.rest.kept_views import KeptViews


class Asked:
    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None

    def __call__(self) -> Any:
        self.count += 1
        if self.failure is not None:
            raise self.failure
        return view_of_a_job()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(shared_answers, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_job_that_runs_is_asked_now_and_then(clock: SimpleNamespace) -> None:
    views, asked = KeptViews(), Asked()
    for _ in range(5):
        views.get("a", False, asked)
    assert asked.count == 1
    clock.now += shared_answers.FRESH_S
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
    for i in range(module.MOST_ENDED + 1):
        views.get(str(i), True, asked)
    views.get("1", True, asked)
    assert asked.count == module.MOST_ENDED + 1
    views.get("0", True, asked)
    assert asked.count == module.MOST_ENDED + 2


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
