"""Where the asynchronous part of a snapshot runs: a thread, or a step of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

Done = Callable[[Any, BaseException | None], None]


class Background(Protocol):
    """Runs work beside the task's thread."""

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Run `work()` some time later, then `done(result, error)`, possibly on another thread.
        Work is run one at a time, in the order submitted."""
        ...

    def close(self) -> None:
        """Take no more work; what runs may end, what waits is dropped."""
        ...


class ThreadBackground:
    """One worker thread, started with the first piece of work. `after` runs after each `done`."""

    def __init__(self, name: str, after: Callable[[], None] = lambda: None) -> None:
        self._after = after
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"strom-{name}")

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                done(None, error)
            else:
                done(result, None)
            self._after()

        self._pool.submit(run)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class SteppedBackground:
    """Work waits until somebody calls `step`: the simulator decides when."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], Any], Done]] = []

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        self._waiting.append((work, done))

    def step(self) -> bool:
        """Run the oldest piece of work; False if there is none."""
        if not self._waiting:
            return False
        work, done = self._waiting.pop(0)
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)
        return True

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def close(self) -> None:
        self._waiting.clear()
