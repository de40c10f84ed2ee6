"""Carries out requests on the loop: one coroutine each, with its retries, and one deadline.

The task's thread hands over requests in groups (`submit`) and takes back what is done in groups
(`take`); between the two threads there is one wake-up per burst, not per record. Everything else
here happens on the loop. Two deques of lists are shared: one side appends lists that it does not
touch any more, the other takes them out.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...api.functions.user_functions import RuntimeContext
from ...core.errors import OperatorError, StromError, TypeMismatchError
from ...core.failure_text import cut, described, traced, users_place, with_place
from ..base import OperatorContext
from ..closing import warn_of_close
from ..letters import is_of_record
from .attempts import Deadlines, Group, Retries
from .figures import LoopFigures
from .loops import open_loop
from .requests import Request

_log = logging.getLogger(__name__)

AT_ONCE = 256
"""How many requests are begun before the loop gets its turn."""

CANCEL_S = 1.0
"""How long, at most, the user's coroutines may take to end once they are cancelled."""

CLOSE_S = 5.0
"""How long, at most, the user's `close` may take."""

SILENT_S = 5.0
"""How long a loop with requests may be silent before that is told."""

SHOWN = 200
"""The most characters of a record in a message."""


@dataclass(frozen=True)
class Calls:
    """The user's functions as the runner calls them, all on the loop.

    invoke: gives the coroutine for a value. given: what of a request's value each attempt gets,
    which it may change; the value itself is asked again, or stored, as it came. results: what the
    coroutine came to, as a request's results, in a list of their own; raises TypeMismatchError if
    it cannot be. timeout: the results of a value whose time is over. keep_all: keeps results
    as they are now, whatever is done to them later (see `rows.emitted`). lists:
    whether the elements of a list are the results, so that `results` need not be asked. what: the
    name of `invoke` in messages; unit: what a value is called there."""

    invoke: Callable[[Any], Awaitable[Any]]
    given: Callable[[Any], Any] | None
    results: Callable[[Any, Any], list[Any]]
    timeout: Callable[[Any], Any]
    open: Callable[[RuntimeContext], Any] | None
    close: Callable[[], Any] | None
    lists: bool
    what: str
    unit: str
    keep_all: Callable[[list[Any]], list[Any]]
    lenient: bool = False
    """Whether a request that fails by its own fault is done all the same, with its `error`."""


class Runner:
    """Of one subtask. Lifecycle: `open`, any number of `submit`, `take` and `step`, `close` once.

    Wakes the operator when something is done or has failed. A failure is raised by `take`, once."""

    def __init__(
        self,
        ctx: OperatorContext,
        calls: Calls,
        timeout_s: float | None,
        retries: Retries | None,
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._invoke = calls.invoke
        self._given = calls.given
        self._lists = calls.lists
        self._keep_all = calls.keep_all
        self._retries = retries
        self._timeout_s = timeout_s
        self._deadlines = Deadlines(timeout_s)
        self._host = open_loop(ctx, self._crashed)
        self._loop = self._host.loop
        self.figures = LoopFigures(self._host)
        self._todo: deque[list[Request]] = deque()
        """Submitted and not begun, for the loop."""
        self._done: deque[list[Request]] = deque()
        """For the task's thread."""
        self._burst: list[Request] = []
        """What was done in this turn of the loop."""
        self._given_up: set[asyncio.Task[None]] = set()
        """Cancelled because their time was over, and not ended yet."""
        self._told = False
        """Whether the operator was woken for `_done` and has not taken it."""
        self._failure: OperatorError | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._closing = False
        self._opened = False
        self._asked_s: float | None = None
        """When the loop was last asked for a sign of life that it has not given."""
        self._patience_s = SILENT_S
        """How long it may be silent before that is told, again."""

    # --- the task's thread --------------------------------------------------------------------

    def open(self, context: RuntimeContext) -> None:
        """Call the user's `open` on the loop and wait for it; what it raises is raised."""
        self._opened = True
        function = self._calls.open
        if function is None:
            return
        raised: list[BaseException] = []

        async def opened() -> None:
            try:
                await _awaited(function(context))
            except BaseException as error:
                raised.append(error)

        self._host.run(opened, None)
        if raised:
            raise raised[0]

    def submit(self, requests: list[Request]) -> None:
        """Begin these, soon and in this order."""
        if requests:
            self._todo.append(requests)
            self._host.soon(self._begin)

    def step(self) -> None:
        """The operator was woken."""
        self._host.step()

    def take(self) -> list[Request]:
        """What is done since the last time, in that order. Raises OperatorError if a request has
        failed."""
        self._told = False
        if self._failure is not None:
            raise self._failure
        done: list[Request] = []
        while self._done:
            done += self._done.popleft()
        return done

    def look(self, now_s: float) -> None:
        """Called every `SILENT_S` or so while there are requests: warn of a loop that is blocked,
        and more and more seldom that it still is."""
        if self._asked_s is None:
            self._asked_s = now_s
            self._host.soon(self._heard)
        elif now_s - self._asked_s >= self._patience_s:
            self._patience_s *= 4
            silent = f"a coroutine has blocked its event loop for {now_s - self._asked_s:.0f} s"
            self._warn(
                f"{silent}, and with it all requests and timeouts of the subtask; use "
                "asyncio.to_thread for calls that block"
            )

    def _heard(self) -> None:
        self._asked_s, self._patience_s = None, SILENT_S

    def close(self) -> None:
        """Cancel what is in flight, call the user's `close`, end the loop. Never raises, and never
        waits for longer than `CANCEL_S`, `CLOSE_S` and a bit."""
        self._closing = True
        ended = self._host.run(self._cancel_all, CANCEL_S + 0.5)
        if ended and self._opened and self._calls.close is not None:
            ended = self._host.run(self._close_function, CLOSE_S + CANCEL_S)
        if not ended:
            self._warn(
                "a coroutine or its close() blocks the event loop, or does not end when cancelled; "
                "use asyncio.to_thread for calls that block"
            )
        if self._host.close(0.5 if ended else 0.0):
            self.figures.end()
        else:
            self._warn("the thread of its event loop does not end, and is left to itself")

    def _warn(self, text: str) -> None:
        _log.warning("operator '%s', subtask %s: %s", self._ctx.name, self._ctx.subtask, text)

    # --- on the loop --------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make a task for each submitted request, some at a time."""
        if self._closing or not self._todo:
            return
        todo = self._todo.popleft()
        if len(todo) > AT_ONCE:
            self._todo.appendleft(todo[AT_ONCE:])
            self._loop.call_soon(self._begin)
            todo = todo[:AT_ONCE]
        group = self._deadlines.group(self._loop.time())
        loop, run, name = self._loop, self._run, self._ctx.name
        for request in todo:
            group[request] = asyncio.Task(run(request, group), loop=loop, name=name)
        if self._timeout_s is not None and self._alarm is None:
            self._set_alarm()

    async def _run(self, request: Request, group: Group) -> None:
        """One request with all its attempts. Where it is in its group no longer, it was given up,
        and what comes of it is nobody's. Each attempt may change the value that it is given; the
        next one, and state, have it as it came."""
        attempt = 1
        while True:
            pause: float | None = None
            results: list[Any] | None = None
            try:
                value, given = request.value, self._given
                result = await self._invoke(value if given is None else given(value))
                if type(result) is list and self._lists:
                    results = result.copy()
                else:
                    results = self._calls.results(request.value, result)
                results = self._keep_all(results)
                if self._retries is not None:
                    pause = self._retries.after_results(result, attempt)
            except BaseException as error:
                if request not in group or self._closing:
                    return
                pause = self._after(error, attempt, request)
                if request.error is not None:
                    results = []
            if pause is not None:
                attempt += 1
                await asyncio.sleep(pause)
            elif results is None or group.pop(request, None) is None:
                return
            else:
                self._complete(request, results)
                return

    def _after(self, error: BaseException, attempt: int, request: Request) -> float | None:
        """Seconds until the request is asked again; None: it has failed, and that is told."""
        pause = None
        try:
            if self._retries is not None:
                pause = self._retries.after_error(error, attempt)
        except BaseException as second:
            error = second
        if pause is None:
            self._fail(request, error, attempt)
        return pause

    def _complete(self, request: Request, results: list[Any]) -> None:
        if request.error is None:
            request.results = results
        if not self._burst:
            self._loop.call_soon(self._hand_over)
        self._burst.append(request)

    def _hand_over(self) -> None:
        burst, self._burst = self._burst, []
        self._done.append(burst)
        if not self._told:
            self._told = True
            self._ctx.wake()

    def _fail(self, request: Request, error: BaseException, attempt: int) -> None:
        if self._puts_aside(request, error):
            return
        tried = "" if attempt == 1 else f" at attempt {attempt}"
        shown = cut(_shown(request.value), SHOWN)
        text = f"{self._calls.what} failed{tried} for the {self._calls.unit} {shown}: "
        self._crashed(error, text)

    def _puts_aside(self, request: Request, error: BaseException) -> bool:
        """Whether it is done with an error, for the task's thread to put aside."""
        if not self._calls.lenient or not isinstance(error, Exception) or not is_of_record(error):
            return False
        request.error = error
        return True

    def _crashed(self, error: BaseException, before: str = "") -> None:
        if self._failure is None:
            own = isinstance(error, StromError)
            text = described(error) + users_place(error) if own else with_place(error)
            trace = "" if own else traced(error)
            self._failure = OperatorError(self._ctx.name, self._ctx.subtask, before + text, trace)
        self._ctx.wake()

    # --- deadlines ----------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        due = self._deadlines.next_due()
        self._alarm = None if due is None else self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        self._alarm = None
        if self._closing:
            return
        for request, task in self._deadlines.expired(self._loop.time()):
            self._given_up.add(task)
            task.add_done_callback(self._given_up.discard)
            task.cancel()
            try:
                value, given = request.value, self._given
                result = self._calls.timeout(value if given is None else given(value))
                results = self._keep_all(self._calls.results(request.value, result))
            except BaseException as error:
                if self._puts_aside(request, error):
                    self._complete(request, [])
                    continue
                tried = f"{self._calls.what} did not end within {self._timeout_s:g} s"
                shown = cut(_shown(request.value), SHOWN)
                self._crashed(error, f"{tried} for the {self._calls.unit} {shown}: ")
                return
            self._complete(request, results)
        self._set_alarm()

    # --- the end ------------------------------------------------------------------------------

    async def _cancel_all(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = [task for _, task in self._deadlines.in_flight()]
        await self._cancelled([*tasks, *self._given_up])

    async def _close_function(self) -> None:
        assert self._calls.close is not None
        try:
            await _awaited(self._calls.close())
        except BaseException as error:
            with suppress(KeyboardInterrupt):
                warn_of_close(self._ctx.name, self._ctx.subtask, "its function", error)
        rest = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        await self._cancelled(list(rest))
        await self._loop.shutdown_asyncgens()

    async def _cancelled(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Cancel the tasks and wait for them to end, not for ever."""
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=CANCEL_S)
            if left:
                self._warn(f"{len(left)} coroutines go on though they were cancelled")


async def _awaited(result: Any) -> None:
    """What a method gave that may be `async def` or not, to its end."""
    if inspect.isawaitable(result):
        await result


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except BaseException as error:
        return f"({type(value).__name__}, whose repr raises {type(error).__name__})"


def listed(what: str) -> Callable[[Any, Any], list[Any]]:
    """`Calls.results` of functions that give a list. `what` names them in the error."""

    def results(value: Any, result: Any) -> list[Any]:
        if isinstance(result, list):
            return list(result)
        raise TypeMismatchError(
            f"{what} gave {cut(_shown(result), SHOWN)} ({type(result).__name__}); return a list of "
            "results, an empty one for none"
        )

    return results
