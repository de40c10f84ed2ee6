"""Futures: of answers that are there, and of those that may come."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from datetime import timedelta
from typing import Any

import pytest
from strom.core.answered import AnsweredDict, CompletableFuture, JobID, Promise
from strom.core.errors import CheckpointError, ConfigurationError

TIMEOUTS = [None, 0, 0.5, timedelta(seconds=1)]


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_an_answer_that_is_there_is_given_whatever_one_would_wait(timeout: Any) -> None:
    kept: Promise[int] = Promise()
    kept.keep(5)
    kept.keep(6)
    kept.fail(CheckpointError("too late"))
    for future, want in (
        (kept, 5),
        (CompletableFuture(5), 5),
        (JobID("a"), "a"),
        (AnsweredDict(a=1), {"a": 1}),
    ):
        assert future.result(timeout) == future.result(timeout=timeout) == want
        assert future.exception(timeout) is future.exception(timeout=timeout) is None
        assert (future.done(), future.cancelled()) == (True, False)


def test_an_answer_that_is_there_is_not_cancelled() -> None:
    kept: Promise[int] = Promise()
    kept.keep(5)
    for future in (kept, CompletableFuture(5)):
        assert not future.cancel()
        assert not future.cancelled()
        assert future.result() == 5


@pytest.mark.parametrize("timeout", [0, 0.001, timedelta(milliseconds=1)])
def test_an_answer_that_does_not_come_in_time(timeout: Any) -> None:
    promise: Promise[int] = Promise()
    assert not promise.done()
    for ask in (promise.result, promise.exception):
        with pytest.raises(TimeoutError):
            ask(timeout)
        with pytest.raises(TimeoutError):
            ask(timeout=timeout)
    promise.fail(CheckpointError("no"))
    with pytest.raises(CheckpointError, match="no"):
        promise.result(timeout)
    assert isinstance(promise.exception(timeout), CheckpointError)
    assert (promise.done(), promise.cancelled(), promise.cancel()) == (True, False, False)


def test_who_waits_hears_that_it_was_cancelled() -> None:
    promise: Promise[int] = Promise()
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            promise.result(timedelta(seconds=60))
        except CancelledError as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert promise.cancel()
    thread.join(60)
    assert len(heard) == 1
    assert promise.cancel(), "as often as one likes"
    assert (promise.done(), promise.cancelled()) == (True, True)
    promise.keep(5)
    promise.fail(CheckpointError("too late"))
    for ask in (promise.result, promise.exception):
        with pytest.raises(CancelledError):
            ask()


@pytest.mark.parametrize("timeout", ["5", b"", [1]])
def test_what_is_no_time_to_wait_is_said(timeout: Any) -> None:
    promise: Promise[int] = Promise()
    for ask in (promise.result, promise.exception):
        with pytest.raises(ConfigurationError, match="timeout must be timedelta or int or float"):
            ask(timeout)


def test_a_wait_that_ends_says_so_and_an_answer_that_is_a_timeout_is_itself() -> None:
    promise: Promise[int] = Promise()
    with pytest.raises(TimeoutError, match=r"no answer yet after 0\.01 s"):
        promise.result(0.01)
    with pytest.raises(TimeoutError, match=r"no answer yet after 0\.0 s"):
        promise.exception(timedelta(0))
    promise.fail(TimeoutError("the storage's"))
    with pytest.raises(TimeoutError, match="the storage's"):
        promise.result(1)
