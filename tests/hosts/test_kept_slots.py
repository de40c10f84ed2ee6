"""Whose slots are that outlive their job, when its coordinator leaves."""

from __future__ import annotations

import asyncio

import pytest
from strom.engine.hosts import kept_slots
from strom.engine.hosts.kept_slots import leave_kept


class Session:
    """There for so many looks, and hears of the end at one of them; None: never."""

    def __init__(self, there: int, hears_at: int | None = None) -> None:
        self.there = there
        self.hears_at = hears_at
        self.looks = 0
        self.released = False

    def heard(self) -> bool:
        return self.hears_at is not None and self.looks >= self.hears_at

    def release(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            raise OSError("for once")
        if self.looks <= self.there:
            return False
        self.released = True
        return True


@pytest.mark.parametrize(
    ("session", "released"),
    [
        (Session(0), True),
        (Session(3), True),
        (Session(0, hears_at=0), False),
        (Session(9, hears_at=4), False),
        (Session(2, hears_at=9), True),
        (Session(10_000_000), False),
    ],
)
def test_they_are_the_sessions_or_given_back(
    monkeypatch: pytest.MonkeyPatch, session: Session, released: bool
) -> None:
    monkeypatch.setattr(kept_slots, "PAUSE_S", 0.001)
    monkeypatch.setattr(kept_slots, "HEARING_S", 0.2)
    asyncio.run(leave_kept("a1", session.heard, session.release))
    assert session.released is released
    assert session.looks <= 1 or session.looks > 2
