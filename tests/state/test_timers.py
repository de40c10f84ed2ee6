"""Timer order, deletion, and restore."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError
from strom.state.key_groups import range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.timers import MemoryTimerQueue


def drain(queue: MemoryTimerQueue, until: int = 1 << 60) -> list[Any]:
    fired = []
    while (timer := queue.pop_due(until)) is not None:
        fired.append(timer)
    queue.validate()
    return fired


def test_time_order_then_order_of_registration() -> None:
    queue = MemoryTimerQueue()
    for timestamp, key in [(20, "a"), (10, "z"), (10, "b"), (10, "z"), (30, "c")]:
        queue.register(timestamp, key)
    assert queue.peek() == 10
    assert drain(queue, 20) == [(10, "z", None), (10, "b", None), (20, "a", None)]
    assert (queue.peek(), len(queue)) == (30, 1)


def test_deleted_timers_do_not_fire_and_return_at_the_end() -> None:
    queue = MemoryTimerQueue()
    queue.register(10, "a", (0, 10))
    queue.register(10, "b")
    queue.delete(10, "a", (0, 10))
    queue.delete(10, "never registered")
    queue.register(10, "a", (0, 10))
    assert drain(queue) == [(10, "b", None), (10, "a", (0, 10))]
    assert queue.peek() is None


def test_timers_may_be_registered_while_firing() -> None:
    queue = MemoryTimerQueue()
    queue.register(1, "a")
    assert queue.pop_due(5) == (1, "a", None)
    queue.register(3, "a")
    queue.register(9, "a")
    assert drain(queue, 5) == [(3, "a", None)]


def test_heap_does_not_grow_with_dead_timers() -> None:
    queue = MemoryTimerQueue()
    for n in range(10_000):
        queue.register(n, "a")
        queue.delete(n, "a")
    assert len(queue._heap) < 200
    queue.validate()


def test_mixed_keys_never_compare() -> None:
    queue = MemoryTimerQueue()
    for key in (1, "a", None, (1, 2)):
        queue.register(5, key, {1: "x"}.get(1))
    assert [timer[1] for timer in drain(queue)] == [1, "a", None, (1, 2)]


OPERATIONS = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 5), st.sampled_from("abcdef"), st.sampled_from([None, 7])
    )
)


@settings(max_examples=examples(60), deadline=None)
@given(OPERATIONS)
def test_agrees_with_a_sorted_list_also_across_restore(operations: list[Any]) -> None:
    backend = MemoryKeyedStateBackend(range_for(0, 1, 128), 128)
    queue = backend.timers("t")
    expected: list[Any] = []
    for register, *timer in operations:
        timer = tuple(timer)
        if register:
            queue.register(*timer)
            if timer not in expected:
                expected.append(timer)
        else:
            queue.delete(*timer)
            if timer in expected:
                expected.remove(timer)
    restored = MemoryKeyedStateBackend(range_for(0, 1, 128), 128)
    restored.restore(backend.snapshot().tables())
    expected.sort(key=lambda timer: timer[0])
    assert drain(restored.timers("t")) == drain(queue) == expected


SCRIPT = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, 3), st.sampled_from("abc")),
        st.tuples(st.just("delete"), st.integers(0, 3), st.sampled_from("abc")),
        st.tuples(st.just("fire"), st.integers(0, 3), st.just("")),
        st.tuples(st.just("look"), st.just(0), st.just("")),
    ),
    max_size=60,
)


@settings(max_examples=examples(200), deadline=None)
@given(SCRIPT)
def test_agrees_with_a_sorted_list_while_firing(script: list[Any]) -> None:
    """Timers come and go between two firings of one timestamp, also ones that are past."""
    queue = MemoryTimerQueue()
    model: list[Any] = []
    for step, time, key in script:
        timer = (time, key, None)
        match step:
            case "register":
                queue.register(time, key)
                model += [] if timer in model else [timer]
            case "delete":
                queue.delete(time, key)
                model = [other for other in model if other != timer]
            case "look":
                assert queue.peek() == min((t for t, _, _ in model), default=None)
            case "fire":
                due = min((t for t in model if t[0] <= time), key=lambda t: t[0], default=None)
                assert queue.pop_due(time) == due
                model = [other for other in model if other != due]
        queue.validate()
        assert len(queue) == len(model)
    assert drain(queue) == sorted(model, key=lambda timer: timer[0])


def test_many_timers_of_one_moment_fire_in_linear_time() -> None:
    queue = MemoryTimerQueue()
    for key in range(200_000):
        queue.register(7, key)
    assert [key for _, key, _ in drain(queue)] == list(range(200_000))
    assert (len(queue), queue.peek()) == (0, None)


def test_a_timer_needs_a_key() -> None:
    backend = MemoryKeyedStateBackend(range_for(0, 1, 128), 128)
    with pytest.raises(StateError, match="no current key"):
        backend.timers("t").register(5, backend.current.key)
    with pytest.raises(TypeError, match="unhashable"):
        backend.timers("t").register(5, ["a list"])
    assert len(backend.timers("t")) == 0
