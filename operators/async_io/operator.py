"""What asynchronous operators of rows and of batches have in common.

The task's thread keeps the requests (`requests`), the loop carries them out (`runner`). Whatever is
in flight is in state: records that are not answered, and results that have not gone out. After a
restore these go first, and what was not answered is asked again, before new records. So a request
may be made more than once; its results come out once. Every subtask is shown all of that state and
takes its own, so that order is kept; at another parallelism it is dealt out evenly.

The operator takes a batch whole, and asks as much of it as the capacity allows. While some of it is
over the capacity its work is parked `WAITING`, and the task takes no input; a checkpoint does not
wait for that.

The watermark that came last is in state, too: what is behind requests in flight was not sent on
before the barrier, and the operators ahead do not send it again. A restored subtask may get records
that others would have got, at the same parallelism, too: a source's splits are dealt out anew at
each restore. So no subtask goes on from its own watermark, but all from the same: the one that who
reads all of them would have arrived at (`time.valve`), the least of those that were not idle, or if
all were, the greatest. Nothing then is late that would not have been without the restart.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...api.specs.async_io import AsyncSpec
from ...core.batch import Batch
from ...core.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from ...state.descriptors import ListStateDescriptor
from ...state.pickling import dumps, loads
from ..base import IN_STATE, WAITING, Operator, Steps, Work
from ..letters import Letters, open_letters
from ..rows.runtime_context import OperatorRuntimeContext
from .attempts import Retries
from .requests import Emission, OrderedRequests, Request, Requests, UnorderedRequests
from .runner import SILENT_S, Calls, Runner

IN_FLIGHT = "inFlight"
"""Metric: requests begun whose results have not gone out."""


WHAT = "a record in flight or its results"
"""What state holds, in errors."""

ITEMS = 512
"""How many items of state there are at most, about: each costs some microseconds."""

Item = tuple[int, int, bytes]
"""Some requests in state: the subtask and the parallelism that they were of, and they, pickled."""


def share(items: Sequence[Item], subtask: int, parallelism: int) -> list[bytes]:
    """What a subtask takes of all subtasks' items, which are in order of these: its own, if there
    are as many subtasks as before, else an even share.

    >>> share([(0, 2, b"a"), (0, 2, b"b"), (0, 2, b"c"), (1, 2, b"d")], 0, 2)
    [b'a', b'b', b'c']
    >>> share([(0, 2, b"a"), (0, 2, b"b"), (0, 2, b"c"), (1, 2, b"d")], 1, 3)
    [b'b']
    """
    if all(former == parallelism for _, former, _ in items):
        return [chunk for owner, _, chunk in items if owner == subtask]
    count = len(items)
    start, end = (at * count // parallelism for at in (subtask, subtask + 1))
    return [chunk for _, _, chunk in items[start:end]]


def reached(active: Iterable[int], idle: Iterable[int]) -> int:
    """The event time that subtasks with these watermarks make up.

    >>> reached([9, 4], [1]), reached([], [3, 7])
    (4, 7)
    """
    return min(active, default=max(idle, default=MIN_TIMESTAMP))


class AsyncOperator(Operator):
    """See the module."""

    def __init__(self, spec: AsyncSpec) -> None:
        self._spec = spec
        kind = OrderedRequests if spec.ordered else UnorderedRequests
        self._requests: Requests = kind(spec.capacity)
        self._runner: Runner | None = None
        self._parked = False
        """Whether work of this operator is under way, which also sees to what comes meanwhile."""
        self._watermark = MIN_TIMESTAMP
        """The last one that came, or that the subtask went on from. Never decreases."""
        self._active = True
        """The last status that came."""
        self._look_ms: int | None = None
        """When to look next whether the loop is alive; None: nothing was in flight last time."""

    # --- of a kind ----------------------------------------------------------------------------

    @abstractmethod
    def _calls(self) -> Calls:
        """The user's function, made for this subtask."""

    @abstractmethod
    def _of(self, batch: Batch) -> list[Request]:
        """A batch as requests."""

    @abstractmethod
    def _emit(self, emission: Emission) -> None:
        """Results that go out."""

    @abstractmethod
    def _stored(self, request: Request) -> Any:
        """What a snapshot keeps of a request: plain data, which `_loaded` reads."""

    @abstractmethod
    def _loaded(self, stored: Any) -> Request: ...

    @property
    @abstractmethod
    def _limit(self) -> int:
        """How many results go out in a step."""

    @property
    @abstractmethod
    def _chunk(self) -> int:
        """How many requests make an item of state, if they are few; another parallelism deals out
        items."""

    # --- lifecycle ----------------------------------------------------------------------------

    def open(self) -> Work:
        self._letters = open_letters(self)
        retries = None if self._spec.retry is None else Retries(self._spec.retry)
        self._runner = Runner(self.ctx, self._calls(), self._spec.timeout_s, retries)
        if self.ctx.threads:
            self.ctx.user_metrics.elsewhere = self._runner.figures
        self._runner.open(OperatorRuntimeContext(self.ctx, keyed=False))
        state = self.ctx.operator_state
        self._state = state.get_union_list_state(ListStateDescriptor("requests"))
        self._times = state.get_union_list_state(ListStateDescriptor("watermarks"))
        self._idle_times = state.get_union_list_state(ListStateDescriptor("idleWatermarks"))
        mine = share(list(self._state.get()), self.ctx.subtask, self.ctx.parallelism)
        self._state.clear()
        self._requests.restore([self._loaded(one) for chunk in mine for one in loads(chunk, WHAT)])
        self._watermark = reached(self._times.get(), self._idle_times.get())
        if self._watermark == MAX_TIMESTAMP:
            self._watermark = MIN_TIMESTAMP  # it comes again, unless the job goes on behind a drain
        if self._watermark > MIN_TIMESTAMP:
            self._requests.mark(Watermark(self._watermark))
        if not self._requests.empty:
            self.go_on_soon()
        return None

    def process(self, batch: Batch, port: int = 0) -> Work:
        self._requests.add(self._of(batch))
        self._begin()
        return self._work(self._over_capacity)

    def process_watermark(self, timestamp: int) -> Work:
        if timestamp <= self._watermark:
            return None  # after a restore: all went on from the same
        self._watermark = timestamp
        if self._requests.empty and not self._parked:
            self.out.emit_watermark(timestamp)
        else:
            self._requests.mark(Watermark(timestamp))
        return None

    def process_status(self, active: bool) -> None:
        self._active = active
        if self._requests.empty and not self._parked:
            self.out.emit_status(active)
        else:
            self._requests.mark(StreamStatus(active))

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        """Where results go out as they come a marker holds up none of them."""
        if self._requests.ordered and not self._requests.empty:
            self._requests.mark(marker)
        else:
            self.out.emit_latency_marker(marker)

    def on_processing_time(self, now_ms: int) -> Work:
        return self._work(self._over_capacity, woken=True)

    def finish(self) -> Work:
        return self._work(lambda: not self._requests.empty, woken=True)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        stored = [self._stored(one) for one in self._requests.requests()]
        size = max(self._chunk, len(stored) // ITEMS)
        us = self.ctx.subtask, self.ctx.parallelism
        chunks = (stored[at : at + size] for at in range(0, len(stored), size))
        self._state.update((*us, dumps(chunk, WHAT)) for chunk in chunks)
        self._times.update([self._watermark] if self._active else [])
        self._idle_times.update([] if self._active else [self._watermark])

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()

    # --- work ---------------------------------------------------------------------------------

    def _work(self, waits: Callable[[], bool], woken: bool = False) -> Work:
        """Take what is done, send it on and ask more; None if that is little and nothing `waits`
        behind it. While work is under way it does all that itself."""
        if self._parked:
            return None
        more = woken and self._round()
        return self._steps(waits, more) if more or waits() else None

    def _steps(self, waits: Callable[[], bool], more: bool) -> Steps:
        self._parked = True
        try:
            while more or waits():
                yield IN_STATE if more else WAITING
                more = self._round()
        finally:
            self._parked = False

    def _round(self) -> bool:
        """Send on a batch of what is done, and ask what there is room for; whether there may be
        more to send on."""
        assert self._runner is not None
        self._runner.step()
        done = self._runner.take()
        if self._letters is not None:
            self._put_aside(done, self._letters)
        self._requests.complete(done)
        more = self._send()
        self._begin()
        return more

    @staticmethod
    def _put_aside(done: list[Request], letters: Letters) -> None:
        """Those that have failed; from here on they are done, in state, too."""
        for request in done:
            error, request.error = request.error, None
            if error is not None:
                request.results = []
                letters.add(request.value, error, request.stamp, "async_invoke")

    def _send(self) -> bool:
        """Send on what may go out, up to a batch; whether there is more."""
        while (next_ := self._requests.next(self._limit)) is not None:
            if isinstance(next_, Emission):
                self._emit(next_)
                return True
            if isinstance(next_, Watermark):
                self.out.emit_watermark(next_.timestamp)
            elif isinstance(next_, LatencyMarker):
                self.out.emit_latency_marker(next_)
            else:
                self.out.emit_status(next_.active)
        return False

    def _begin(self) -> None:
        assert self._runner is not None
        self._runner.submit(self._requests.begin())
        if self._requests.begun and self.ctx.threads:
            self._look(self._runner)
        self.ctx.metrics.gauge(IN_FLIGHT, self._requests.begun)

    def _look(self, runner: Runner) -> None:
        """Whether the loop is alive, now and then."""
        now_ms = self.ctx.clock.now_ms()
        if self._look_ms is not None and now_ms < self._look_ms:
            return
        if self._look_ms is not None:
            runner.look(self.ctx.clock.monotonic())
        self._look_ms = now_ms + int(SILENT_S * 1000)
        self.ctx.wake_at(self._look_ms)

    def _over_capacity(self) -> bool:
        return self._requests.waiting > 0
