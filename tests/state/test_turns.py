"""Who moves arrays waits for one chunk of a reader, not for all of them."""

from __future__ import annotations

import threading

from strom.state.turns import Turns


def test_the_mover_goes_before_the_next_chunk() -> None:
    """The reader takes chunk after chunk without a pause; each mover gets in between."""
    turns, chunks, stop = Turns(), 0, threading.Event()
    inside = 0

    def read() -> None:
        nonlocal chunks, inside
        while not stop.is_set():
            with turns.reading():
                inside += 1
                for _ in range(10_000):
                    pass
                inside -= 1
            chunks += 1

    reader = threading.Thread(target=read)
    reader.start()
    waited = []
    try:
        for _ in range(50):
            before = chunks
            with turns.moving():
                assert inside == 0
                waited.append(chunks - before)
    finally:
        stop.set()
        reader.join()
    assert sorted(waited)[len(waited) // 2] <= 2
