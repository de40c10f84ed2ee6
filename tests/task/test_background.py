"""The thread that writes snapshots."""

from __future__ import annotations

import threading
from weakref import ref

from strom.engine.task.background import ThreadBackground


class Snapshot:
    """What a piece of work holds."""


def test_what_is_done_is_let_go() -> None:
    """A snapshot holds copies, and what it reads is not used again: it must not wait for the next
    checkpoint."""
    rested, results = threading.Event(), []
    background = ThreadBackground("test", rested.set)

    def submit() -> ref[Snapshot]:
        snapshot = Snapshot()
        background.submit(lambda: id(snapshot), lambda result, error: results.append(error))
        return ref(snapshot)

    try:
        held = submit()
        assert rested.wait(10)
        assert results == [None]
        assert held() is None
    finally:
        background.close()
