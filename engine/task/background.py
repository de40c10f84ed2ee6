"""Where the asynchronous part of a snapshot runs: a thread, or a step of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from ...core.failure_text import is_for_the_program

Done = Callable[[Any, BaseException | None], None]


class Background(Protocol):
    """Runs work beside the task's thread."""

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Run `work()` some time later, then `done(result, error)`, possibly on another thread.
        Work is run one at a time, in the order submitted."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the results are wanted no more. What runs asks now and then."""
        ...

    @property
    def threads(self) -> bool:
        """Whether threads run beside the task's, so that operators may start some, too."""
        ...

    def close(self, wait_s: float = 0.0) -> None:
        """Take no more work; what runs may end, which is waited for so long at most; what waits is
        dropped."""
        ...


class ThreadBackground:
    """One daemon thread, started with the first piece of work. `after` runs after each `done`.

    Not a ThreadPoolExecutor: the interpreter waits for the threads of those before it ends, and an
    upload that hangs would keep the user's program for ever.
    """

    threads = True

    def __init__(self, name: str, after: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._after = after
        self._work: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        """None: look at `_closed`."""
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        if self._closed:
            return
        self._work.put((work, done))
        self.start()

    def start(self) -> None:
        """Start its thread, if it has none yet: what a thread begins with (its working directory)
        it has from the one that starts it."""
        if self._thread is None:
            speaking = copy_context()  # for the same job, in logs
            name = f"strom-{self._name}-writer"
            self._thread = Thread(target=speaking.run, args=(self._run,), name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (item := self._work.get()) is not None and not self._closed:
            _run_one(*item)
            del item  # a snapshot is not kept until the next one comes
            self._after()

    def close(self, wait_s: float = 0.0) -> None:
        self._closed = True
        self._work.put(None)
        if wait_s > 0 and self._thread is not None:
            self._thread.join(wait_s)

    @property
    def closed(self) -> bool:
        return self._closed


def _run_one(work: Callable[[], Any], done: Done) -> None:
    try:
        result = work()
    except BaseException as error:
        done(None, error)
    else:
        done(result, None)


class SteppedBackground:
    """Work waits until somebody calls `step`: the simulator decides when."""

    threads = False

    def __init__(self) -> None:
        self.closed = False
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
        except BaseException as error:
            if is_for_the_program(error):
                raise
            done(None, error)
        else:
            done(result, None)
        return True

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def close(self, wait_s: float = 0.0) -> None:
        self.closed = True
        self._waiting.clear()
