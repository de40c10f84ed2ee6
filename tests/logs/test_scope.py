"""Who says a line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from strom.logs.scope import LogScope, bind, current_scope, set_process_scope, tells_scope

JOB = LogScope("j", "job")
OUTER = LogScope("j", "job", "chain", "outer", "1", 0, 2)
INNER = LogScope("j", "job", "chain", "inner", "2", 0, 2)


class Node:
    def __init__(self, scope: LogScope | None) -> None:
        self.log_scope = scope

    @tells_scope
    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    @tells_scope
    def steps(self, work: Iterator[Any]) -> Any:
        return next(work)


@pytest.fixture(autouse=True)
def _no_scope_is_left() -> Iterator[None]:
    yield
    set_process_scope(None)
    bind(None)


def in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_the_innermost_call_tells_and_the_one_before_when_it_is_over() -> None:
    seen: list[LogScope | None] = []

    def outer() -> None:
        Node(INNER).call(lambda: seen.append(current_scope()))
        seen.append(current_scope())

    Node(OUTER).call(outer)
    assert seen == [INNER, OUTER]
    assert current_scope() is None


def test_work_in_steps_is_said_by_who_resumes_it() -> None:
    def work() -> Iterator[LogScope | None]:
        while True:
            yield current_scope()

    steps = work()
    assert Node(OUTER).steps(steps) == OUTER
    assert Node(INNER).steps(steps) == INNER


def test_a_call_without_a_scope_is_passed_over() -> None:
    assert Node(OUTER).call(lambda: Node(None).call(current_scope)) == OUTER


def test_threads_have_what_they_were_bound_to_else_the_process_scope() -> None:
    bind(OUTER)
    assert current_scope() == OUTER
    assert in_thread(current_scope) is None
    set_process_scope(JOB)
    assert in_thread(current_scope) == JOB
    assert current_scope() == OUTER


def test_coroutines_and_their_helper_threads_keep_it() -> None:
    async def main() -> list[LogScope | None]:
        bind(INNER)
        return [await asyncio.to_thread(current_scope), current_scope()]

    assert asyncio.run(main()) == [INNER, INNER]


def test_a_deep_stack_is_looked_up() -> None:
    def deep(left: int) -> LogScope | None:
        return current_scope() if not left else deep(left - 1)

    assert Node(OUTER).call(deep, 500) == OUTER
