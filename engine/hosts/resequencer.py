"""Putting numbered messages back in order.

Ray may start the calls of one caller on an asyncio actor in another order than they were made. The
messages between a coordinator and a task must arrive in the order sent, so the sender numbers them
and the receiver waits for the one that is next. None is ever lost while both processes live: Ray
delivers every call or reports the actor dead. A number that is taken and not sent would hold back
all later messages for ever, so a message is pickled first, and a number counts once it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Numbering:
    """0, 1, 2, ... for the messages of one sender to one receiver."""

    def __init__(self) -> None:
        self._next = 0

    def send(self, call: Callable[[int], object]) -> None:
        """Do `call` with the next number. If it raises, the number is still the next."""
        call(self._next)
        self._next += 1


class Resequencer(Generic[T]):
    """Gives out messages in the order of their numbers.

    Invariant: `_early` holds only numbers greater than `_next`, the one that must come first.
    """

    def __init__(self) -> None:
        self._next = 0
        self._early: dict[int, T] = {}

    def accept(self, number: int, message: T) -> list[T]:
        """The messages that are now in order, this one among them or not yet."""
        if number < self._next or number in self._early:
            raise ValueError(f"message {number} came twice; the next is {self._next}")
        self._early[number] = message
        ready: list[T] = []
        while self._next in self._early:
            ready.append(self._early.pop(self._next))
            self._next += 1
        return ready

    def validate(self) -> None:
        assert all(number > self._next for number in self._early)
