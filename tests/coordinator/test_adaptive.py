"""When a job goes on smaller, and when it grows. Times are seconds."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from strom.core.adaptive_config import AdaptiveConfig
from strom.engine.coordinator.adaptive import Growing, Smaller, TooLittle, Wait, Waiting


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


CONFIG = AdaptiveConfig(
    enabled=True,
    wait=seconds(60),
    stabilization=seconds(10),
    cooldown=seconds(30),
    growth_stabilization=seconds(20),
)


def test_it_starts_smaller_once_the_room_is_the_same_for_a_while() -> None:
    waiting = Waiting(CONFIG, 4, 100.0)
    assert waiting.look(2, 2, 101.0) == Wait()
    assert waiting.look(2, 2, 110.9) == Wait()
    assert waiting.look(3, 2, 111.0) == Wait(), "a node has come"
    assert waiting.look(3, 3, 120.9) == Wait()
    assert waiting.look(3, 3, 121.0) == Smaller(3)


def test_it_does_not_while_there_is_room_for_all() -> None:
    """Ray is about to make the slots; that it does not find the places is seen in the end."""
    waiting = Waiting(CONFIG, 4, 0.0)
    assert waiting.look(4, 0, 1.0) == Wait()
    assert waiting.look(4, 3, 59.0) == Wait()
    assert waiting.look(4, 3, 60.0) == Smaller(3)
    assert Waiting(CONFIG, 4, 0.0).look(4, None, 60.0) == TooLittle()


def test_too_little_is_waited_for_and_then_given_up() -> None:
    waiting = Waiting(CONFIG, 4, 0.0)
    assert waiting.look(None, None, 1.0) == Wait()
    assert waiting.look(None, None, 59.9) == Wait()
    assert waiting.look(None, None, 60.0) == TooLittle()
    assert Waiting(CONFIG, 4, 0.0).look(1, 1, 60.0) == Smaller(1)


@given(st.lists(st.tuples(st.none() | st.integers(1, 4), st.floats(0.1, 20))), st.integers(0, 4))
def test_it_never_takes_more_than_there_is(
    looks: list[tuple[int | None, float]], placed: int
) -> None:
    """Nor anything while it waits for less than `stabilization`."""
    waiting, now, same = Waiting(CONFIG, 4, 0.0), 0.0, 0.0
    seen: int | None = None
    for fitting, later in looks:
        now += later
        same = same + later if fitting == seen else 0.0
        seen = fitting
        had = min(placed, fitting or 0) or None
        verdict = waiting.look(fitting, had, now)
        if isinstance(verdict, Smaller):
            assert verdict.parallelism <= (fitting or 0)
            assert now >= 60 or (same >= 9.99 and verdict.parallelism == fitting)
            return
        if isinstance(verdict, TooLittle):
            assert now >= 60
            assert had is None
            return


def test_it_grows_to_all_at_once_and_to_less_after_a_while() -> None:
    growing = Growing(CONFIG)
    assert growing.look(1, 1, 4, 0.0) is None
    assert growing.look(1, 4, 4, 29.0) is None, "it has just started"
    assert growing.look(1, 4, 4, 30.0) == 4
    assert growing.look(4, 4, 4, 31.0) is None
    growing = Growing(CONFIG)
    growing.look(1, 1, 4, 0.0)
    assert growing.look(1, 2, 4, 40.0) is None
    assert growing.look(1, 3, 4, 55.0) is None, "another node"
    assert growing.look(1, 3, 4, 75.0) == 3
    assert growing.look(3, 3, 4, 76.0) is None


def test_it_does_not_grow_soon_after_it_could_not() -> None:
    growing = Growing(CONFIG)
    growing.look(1, 1, 2, 0.0)
    assert growing.look(1, 2, 2, 40.0) == 2
    growing.failed(50.0)
    assert growing.look(1, 2, 2, 79.0) is None
    assert growing.look(1, 2, 2, 80.0) == 2
    assert growing.look(1, None, 2, 90.0) is None
