"""What is in flight, and in what order results may go out. No loop, no thread, no clock.

    add ──▶ waiting ──begin──▶ in flight ──complete──▶ done ──next──▶ out
             (over the capacity)

Two orders. *Ordered*: results go out exactly in the order of their records; one slow request holds
back those behind it. *Unordered*: results go out as they come, but never past a watermark or a
change of activity: these cut the records into *segments*, of which only the first one emits.

    r1 r2 r3 │W5│ r4 r5 │W9│ r6           first segment {r1 r2 r3}; W5 goes out when it is empty

What is begun and has not gone out counts against the capacity, results that wait for their turn
included. What is over it waits here; whoever adds takes no more input while something does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...core.elements import LatencyMarker, StreamStatus, Watermark

Marker = Watermark | StreamStatus | LatencyMarker
"""What no result goes past."""


class Request:
    """One call of the user's function, and its results once there are.

    `results` is None until the request is done, and what has not gone out from then on."""

    __slots__ = ("counts", "error", "results", "segment", "stamp", "value")

    def __init__(self, value: Any, stamp: int | None, results: list[Any] | None = None) -> None:
        self.value = value
        self.stamp = stamp
        """Event time of the record, and of its results; None: it has none."""
        self.results = results
        self.error: Exception | None = None
        """Why there will be no results, where such requests are put aside; not in state: until the
        task's thread has put it aside, it is a request that is not answered."""
        self.segment: Any = None
        """Where an unordered queue keeps it."""
        self.counts = results is None
        """Whether it counts against the capacity once it is begun. Not if it was done when it was
        made: it would keep those from beginning that it has to wait for."""


@dataclass(slots=True)
class Emission:
    """Results that may go out now, in this order. `counts`: how many of `values` belong to each of
    `stamps`; None: one each. Either all `stamps` are None or none is."""

    values: list[Any]
    stamps: list[int | None]
    counts: list[int] | None


class Requests(ABC):
    """Invariant: every request added and not gone out completely is kept exactly once."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[Request] = deque()
        self._begun = 0
        """How many are begun and have not gone out."""

    @property
    def waiting(self) -> int:
        """How many requests are over the capacity."""
        return len(self._waiting)

    @property
    def begun(self) -> int:
        """How many count against the capacity."""
        return self._begun

    def add(self, requests: Iterable[Request]) -> None:
        """Behind all that was added before; none of them is done."""
        requests = list(requests)
        self._place(requests)
        self._waiting.extend(requests)

    def restore(self, requests: Iterable[Request]) -> None:
        """What `requests` gave before a failure, some of them done."""
        requests = list(requests)
        self._place(requests)
        self.complete(one for one in requests if one.results is not None)
        self._waiting.extend(one for one in requests if one.results is None)

    def begin(self) -> list[Request]:
        """The requests to ask now: as many as the capacity allows, the oldest first."""
        room = self._capacity - self._begun
        waiting = self._waiting
        if room <= 0 or not waiting:
            return []
        if room >= len(waiting):
            begun, self._waiting = list(waiting), deque()
        else:
            begun = [waiting.popleft() for _ in range(room)]
        self._begun += len(begun)
        return begun

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Whether results go out in the order of their records."""

    @abstractmethod
    def _place(self, requests: list[Request]) -> None:
        """Give new requests their place in the order."""

    @abstractmethod
    def mark(self, marker: Marker) -> None:
        """What no result of a request added before may come behind, nor one added later before."""

    @abstractmethod
    def complete(self, requests: Iterable[Request]) -> None:
        """These requests, which were begun, have their `results` now."""

    @abstractmethod
    def next(self, limit: int) -> Emission | Marker | None:
        """What may go out now: at most `limit` results (at least one record's share of them), or
        one marker. None: nothing until more is complete. What is returned is gone."""

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """All that are kept, in an order in which they may be asked again."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether nothing is kept, no marker either."""


class OrderedRequests(Requests):
    """See the module."""

    ordered = True

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._queue: deque[Request | Marker] = deque()

    def _place(self, requests: list[Request]) -> None:
        self._queue.extend(requests)

    def mark(self, marker: Marker) -> None:
        self._queue.append(marker)

    def complete(self, requests: Iterable[Request]) -> None:
        """Their place in the queue says all."""

    def next(self, limit: int) -> Emission | Marker | None:
        queue = self._queue
        gathering = _Gathering(limit)
        while queue:
            head = queue[0]
            if not isinstance(head, Request):
                if gathering.empty:
                    queue.popleft()
                    return head
                break
            if head.results is None or not gathering.take(head):
                break
            queue.popleft()
            self._begun -= head.counts
        return gathering.emission()

    def requests(self) -> Iterator[Request]:
        return (one for one in self._queue if isinstance(one, Request))

    @property
    def empty(self) -> bool:
        return not self._queue


class _Segment:
    """The requests between two markers. `open` holds those that are not done, in order of their
    arrival; `done` those that are and have not gone out."""

    __slots__ = ("done", "marker", "open")

    def __init__(self) -> None:
        self.open: dict[Request, None] = {}
        self.done: deque[Request] = deque()
        self.marker: Marker | None = None
        """What ends it; None: it is the last one."""


class UnorderedRequests(Requests):
    """See the module. Invariant: there is a last segment, and only that has no marker."""

    ordered = False

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._segments: deque[_Segment] = deque([_Segment()])

    def _place(self, requests: list[Request]) -> None:
        last = self._segments[-1]
        for request in requests:
            request.segment = last
        last.open.update(dict.fromkeys(requests))

    def mark(self, marker: Marker) -> None:
        self._segments[-1].marker = marker
        self._segments.append(_Segment())

    def complete(self, requests: Iterable[Request]) -> None:
        for request in requests:
            segment = request.segment
            del segment.open[request]
            segment.done.append(request)

    def next(self, limit: int) -> Emission | Marker | None:
        first = self._segments[0]
        gathering = _Gathering(limit)
        done = first.done
        while done and gathering.take(done[0]):
            request = done.popleft()
            request.segment = None
            self._begun -= request.counts
        emission = gathering.emission()
        if emission is None and not done and not first.open and first.marker is not None:
            self._segments.popleft()
            return first.marker
        return emission

    def requests(self) -> Iterator[Request]:
        for segment in self._segments:
            yield from segment.done
            yield from segment.open

    @property
    def empty(self) -> bool:
        first = self._segments[0]
        return len(self._segments) == 1 and not first.open and not first.done


class _Gathering:
    """Results of several requests on the way out, up to a limit."""

    __slots__ = ("_counts", "_limit", "_stamps", "_values")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: list[Any] = []
        self._stamps: list[int | None] = []
        self._counts: list[int] = []

    def take(self, request: Request) -> bool:
        """Whether all its results are taken; else what is left stays with it."""
        results = request.results
        assert results is not None
        room = self._limit - len(self._values)
        if not results:
            return True
        if room <= 0 or (self._stamps and (self._stamps[0] is None) != (request.stamp is None)):
            return False
        self._stamps.append(request.stamp)
        if len(results) <= room:
            self._values.extend(results)
            self._counts.append(len(results))
            return True
        self._values.extend(islice(results, room))
        self._counts.append(room)
        request.results = results[room:]
        return False

    @property
    def empty(self) -> bool:
        return not self._values

    def emission(self) -> Emission | None:
        """None: nothing was taken, or nothing came of it."""
        if not self._values:
            return None
        one_each = len(self._values) == len(self._stamps)
        return Emission(self._values, self._stamps, None if one_each else self._counts)
