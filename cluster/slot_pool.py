"""Slots that jobs of a session have left, for those that come next. Pure.

A job's slots are one placement group, which Ray takes a second to make again where one has just
been removed, and which other programs may take meanwhile. So it stays for a while (the job's
`slot.idle.timeout`), and goes to the next job whose slots are the same; it is released when its
time is over, when another job needs the room, and with the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

PREFIX: Final = "strom-slots-"
"""Names of groups that belong to a session begin so."""


def prefix_of(registry: str) -> str:
    """What names of groups begin with that belong to the session of this registry: another one, on
    the same cluster after it, has no business with slots in which jobs of this one still run."""
    return f"{PREFIX}{blake2b(registry.encode(), digest_size=6).hexdigest()}-"


@dataclass(frozen=True)
class SlotGroup:
    """What is known of one. `shape`: of its bundles, in their order."""

    name: str
    shape: str
    takes: Mapping[str, float]


def shape_of(bundles: list[dict[str, Any]], spread: bool = False) -> str:
    """The same for the same bundles in the same order, and on as many machines as there are
    (`spread`), or on as few."""
    told = [sorted((name, float(amount)) for name, amount in one.items()) for one in bundles]
    text = f"{told} spread" if spread else repr(told)
    return blake2b(text.encode(), digest_size=8).hexdigest()


class SlotPool:
    """Those that no job has. Invariant: a group is in here or with one job, never both."""

    def __init__(self) -> None:
        self._idle: dict[str, tuple[SlotGroup, int]] = {}
        """With the time (ms) at which each is released; who came first is first."""

    @property
    def names(self) -> set[str]:
        return set(self._idle)

    def takes(self, resource: str) -> float:
        """What all of them take of it."""
        return sum(group.takes.get(resource, 0.0) for group, _ in self._idle.values())

    def add(self, group: SlotGroup, until_ms: int) -> None:
        """A job has left it."""
        assert group.name not in self._idle, f"{group.name} is left twice"
        self._idle[group.name] = group, until_ms

    def lend(self, shape: str) -> str | None:
        """One of this shape, which is the caller's then: the one that was left last."""
        for name, (group, _) in reversed(self._idle.items()):
            if group.shape == shape:
                del self._idle[name]
                return name
        return None

    def expired(self, now_ms: int) -> list[str]:
        """Those to release now."""
        return self._drop(lambda until: until <= now_ms)

    def make_room(self, fits: Callable[[], bool]) -> list[str]:
        """Those to release, the oldest first, until `fits` or none is left."""
        released = []
        while self._idle and not fits():
            name = next(iter(self._idle))
            del self._idle[name]
            released.append(name)
        return released

    def clear(self) -> list[str]:
        """All of them are to be released."""
        return self._drop(lambda until: True)

    def _drop(self, over: Callable[[int], bool]) -> list[str]:
        names = [name for name, (_, until) in self._idle.items() if over(until)]
        for name in names:
            del self._idle[name]
        return names
