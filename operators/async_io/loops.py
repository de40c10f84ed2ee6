"""The event loop of one operator's subtask: on a thread of its own, or stepped by the task's.

All user coroutines of the subtask run on it. Where the operator may start threads (see
`OperatorContext.threads`) it has one, whatever the user's code does there: the task's thread hears
its mail. In the simulator and the operator harness the loop has the virtual clock's time and runs
when the operator is woken; where nothing is ready and no time is awaited it looks for real input,
for coroutines that talk to sockets or threads.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from ...core.clock import Clock
from ...logs.scope import bind, current_scope
from ..base import OperatorContext
from .helpers import Helpers

SHORT_S = 1.0
"""Timers that are due sooner are short."""

REAL_WAIT_S = 0.01
"""How long a stepped loop looks for real input at a time."""


class Loop(ABC):
    """`loop` may be used from functions that run on it. Closed exactly once."""

    loop: asyncio.AbstractEventLoop

    @abstractmethod
    def soon(self, call: Callable[[], None]) -> None:
        """From the task's thread: run `call` on the loop soon."""

    @abstractmethod
    def run(self, made: Callable[[], Coroutine[Any, Any, None]], limit_s: float | None) -> bool:
        """From the task's thread: run the coroutine that `made` makes on the loop to its end, for
        at most so many seconds (None: as long as it takes). Whether it came to its end; what it
        raises it must keep itself."""

    @abstractmethod
    def step(self) -> None:
        """From the task's thread, which was woken: let a loop without a thread go on."""

    @abstractmethod
    def close(self, limit_s: float) -> bool:
        """End the loop; whether its thread has ended after so many seconds."""


class ThreadLoop(Loop):
    """A daemon thread, so that a coroutine that blocks it cannot keep the program."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        """`failed`, on the thread: a task of the user's own ended the loop with this."""
        self._failed = failed
        self._context = copy_context()
        """Of all that runs on the loop: its lines in the log are the operator's."""
        self._context.run(bind, current_scope())
        self.loop = _SharedTimersLoop()
        self._helpers = _use_helpers(self.loop, name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        except BaseException as error:  # SystemExit and KeyboardInterrupt come through asyncio
            self._failed(error)
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def soon(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call, context=self._context)

    def run(self, made: Callable[[], Coroutine[Any, Any, None]], limit_s: float | None) -> bool:
        over = threading.Event()

        async def tell() -> None:
            try:
                await made()
            finally:
                over.set()

        keep: list[asyncio.Task[None] | None] = []
        self.soon(lambda: keep.append(None if keep else self.loop.create_task(tell())))
        if limit_s is not None:
            ended = over.wait(limit_s)
            keep.append(None)  # if the loop was blocked all the time it need not begin any more
            return ended
        while not over.wait(0.1):  # in pieces: a thread that waits for ever cannot be interrupted
            pass
        return True

    def step(self) -> None:
        """It has a thread."""

    def close(self, limit_s: float) -> bool:
        self._helpers.shutdown(wait=False, cancel_futures=True)
        self.soon(self.loop.stop)
        self._thread.join(limit_s)
        return not self._thread.is_alive()


class _SharedTimersLoop(asyncio.SelectorEventLoop):
    """Short timers of the same millisecond, which is as exactly as a loop waits, are one of the
    loop's: with ten thousand pauses under way its heap costs as much as all else. Long ones, which
    are mostly cancelled, stay where the loop forgets them when they are."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[int, list[asyncio.TimerHandle]] = {}
        """By millisecond; each has a timer of the loop."""

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if when - self.time() > SHORT_S:
            return super().call_at(when, callback, *args, context=context)
        at = int(when * 1000) + 1
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handles = self._shared.get(at)
        if handles is None:
            self._shared[at] = [handle]
            super().call_at(at / 1000, self._run_shared, at)
        else:
            handles.append(handle)
        return handle

    def _run_shared(self, at: int) -> None:
        for handle in self._shared.pop(at):
            if not handle.cancelled():
                handle._run()


class SteppedLoop(Loop):
    """Runs its callbacks in `step`. Asks to be woken while it has some, or for a time."""

    def __init__(self, name: str, ctx: OperatorContext) -> None:
        self.loop = self._timed = _TimedLoop(ctx.clock)
        self._helpers = _use_helpers(self.loop, name)
        self._ctx = ctx

    def soon(self, call: Callable[[], None]) -> None:
        self.loop.call_soon(call)
        self._ctx.wake()

    def run(self, made: Callable[[], Coroutine[Any, Any, None]], limit_s: float | None) -> bool:
        """At once. Time stands still meanwhile: a coroutine that awaits some does not end."""
        task = self.loop.create_task(made())
        while not task.done():
            if not self._timed.ready and not self._timed.due and self._timed.next_due():
                if limit_s is not None:
                    return False
                raise TimeoutError("open() awaits a time, and under a virtual clock none passes")
            self._timed.once()
        return True

    def step(self) -> None:
        self._timed.once()
        due = self._timed.next_due()
        if self._timed.ready or self._timed.due:
            self._ctx.wake()
        elif due is not None:
            self._ctx.wake_at(-int(-due * 1000 // 1))
        elif asyncio.all_tasks(self.loop):
            self._ctx.wake()

    def close(self, limit_s: float) -> bool:
        self._helpers.shutdown(wait=False, cancel_futures=True)
        self._timed.once()
        self.loop.close()
        return True


class _TimedLoop(asyncio.SelectorEventLoop):
    """A loop with the time of a clock that does not move by itself."""

    _ready: Any  # asyncio's own: what is to be called now

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._clock_resolution = 0.0005  # asyncio's own; the clock knows whole milliseconds only
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap; the number only keeps handles from being compared."""
        self._made = 0

    def time(self) -> float:
        return self._clock.monotonic()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, handle))
        return handle

    @property
    def ready(self) -> bool:
        return bool(self._ready)

    @property
    def due(self) -> bool:
        """Whether the next timer is due now."""
        at = self.next_due()
        return at is not None and at <= self.time() + self._clock_resolution

    def next_due(self) -> float | None:
        """The time (s) of the next timer, which may be now."""
        timers = self._timers
        while timers and _is_over(timers[0][2]):
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def once(self) -> None:
        """Run what is ready or due. If there is nothing, and no time is awaited, wait a little for
        real input."""
        if not self._ready and self.next_due() is None and asyncio.all_tasks(self):
            self._ready_from_outside()
        self.call_soon(self.stop)
        self.run_forever()

    def _ready_from_outside(self) -> None:
        events = self._selector.select(REAL_WAIT_S)  # type: ignore[attr-defined]
        self._process_events(events)  # type: ignore[attr-defined]


def _is_over(handle: Any) -> bool:
    """Whether a timer is cancelled, or the loop has taken it out of its own heap to run it."""
    return handle.cancelled() or not handle._scheduled


def _use_helpers(loop: asyncio.AbstractEventLoop, name: str) -> Helpers:
    helpers = Helpers(f"{name}-helper")
    loop.set_default_executor(helpers)
    return helpers


def open_loop(ctx: OperatorContext, failed: Callable[[BaseException], None]) -> Loop:
    """The loop of this subtask. `failed`: see `ThreadLoop`."""
    name = f"strom-{ctx.name}-{ctx.subtask}-loop"
    return ThreadLoop(name, failed) if ctx.threads else SteppedLoop(name, ctx)
