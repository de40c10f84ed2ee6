"""Answers that several ask for at once: who asks, and what becomes of those that wait."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from strom.rest import shared_answers as module
from strom.rest.catalog import Unavailable
from strom.rest.shared_answers import SharedAnswers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
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
    clock.now += module.FRESH_S
    assert answers.get("a", lambda: 3) == 3


def test_nobody_waits_for_long_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
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
