"""Collects what user functions yield and sends it as batches, main and side outputs apart.

A hot loop appends results to `values` and, after each group of results that share a timestamp, the
number of values so far to `bounds`; everything else happens once per batch. Of one call's results
no more are taken at a time than make a batch, so a generator may yield for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np

from ...api.functions.user_functions import OutputTag
from ...api.types.declared import Declared, as_declared, declared_records
from ...core.batch import ObjectBatch, Timestamps
from ...core.errors import TypeMismatchError
from ...state.copies import FIXED
from ..base import Output, Steps
from .emitted import Keep
from .pace import Pace


class Collector:
    """Between two flushes either every group has a timestamp or none has.

    declared: what the main output becomes; a side output what its tag declares. pace: how many
    values make a batch. keep: see `emitted`; who appends to `values` has asked it.
    """

    def __init__(self, out: Output, declared: Declared | None, pace: Pace, keep: Keep) -> None:
        self._out = out
        self.keep = keep
        self._declared = declared
        self._pace = pace
        self.values: list[Any] = []
        self.bounds: list[int] = []
        """End of each group within `values`; never decreases."""
        self._stamps: list[int] = []
        self._barren = 0
        """How many groups since the last flush were empty; `collect` leaves them out."""

    def begin(self) -> int:
        """A batch of results begins; at how many `values` it is full."""
        return self._pace.begin()

    @property
    def size(self) -> int:
        """At how many `values` the batch that has begun is full."""
        return self._pace.size

    def overflow(self, rest: Iterator[Any], stamps: Timestamps | None, first: int) -> Steps:
        """Send what is there, the last of it from a record that may give more (`rest`), and all of
        that but what makes no full batch; a pause after each batch. Then that is in `values`, and
        the record's group, the first, is not ended yet.

        `stamps`: of all records, the group at `bounds[i]` being that of record `first + i`."""
        while True:
            self._pace.full()
            self.bounds.append(len(self.values))
            last = first + len(self.bounds)
            self.flush_groups(None if stamps is None else stamps[first:last])
            first = last - 1
            yield None
            full = self.begin()
            self._take(rest, full)
            if len(self.values) < full:
                return

    def collect(self, results: Iterable[Any] | None, stamp: int) -> Iterator[Any] | None:
        """One group of results with one timestamp, as many as fit a batch. What is left of them if
        the batch is full then: to be collected after a `flush`, and a pause.

        Raises TypeMismatchError if `results` is not iterable."""
        if not self.bounds and not self._barren:
            self._pace.begin()
        if results is None:
            self._barren += 1
            return None
        rest, before = iterator(results, "the function"), len(self.values)
        self._take(rest, self._pace.size - before)
        if len(self.values) == before:
            self._barren += 1
            return None
        self.bounds.append(len(self.values))
        self._stamps.append(stamp)
        return rest if len(self.values) >= self._pace.size else None

    def _take(self, rest: Iterator[Any], count: int) -> None:
        values, keep = self.values, self.keep
        for one in islice(rest, count):
            values.append(one if type(one) in FIXED else keep(one))

    @property
    def full(self) -> bool:
        """Whether a batch is there, or as many calls gave nothing, so that it is time to pause."""
        return len(self.values) >= self._pace.size or self._barren >= self._pace.size

    def flush(self) -> None:
        """Send what `collect` gathered."""
        if self.full:
            self._pace.full()
        self._barren = 0
        stamps, self._stamps = self._stamps, []
        self.flush_groups(np.array(stamps, dtype=np.int64))

    def flush_groups(self, stamps: Timestamps | None) -> None:
        """Send what is in `values`; `stamps` has one timestamp per group (None: no timestamps).

        `values` and `bounds` are new lists afterwards."""
        values, bounds = self.values, self.bounds
        self.values, self.bounds = [], []
        if not values:
            return
        if stamps is not None:
            stamps = _one_each(stamps, bounds)
        if _may_hold_side_outputs(values):
            values, stamps = self._send_side_outputs(values, stamps)
        if values:
            batch = ObjectBatch(values, stamps)
            self._out.emit(batch if self._declared is None else as_declared(batch, self._declared))

    def _send_side_outputs(
        self, values: list[Any], stamps: Timestamps | None
    ) -> tuple[list[Any], Timestamps | None]:
        """What remains for the main output."""
        side: dict[str, list[int]] = {}
        tags: dict[OutputTag, None] = {}
        for index, value in enumerate(values):
            if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
                side.setdefault(value[0].tag_id, []).append(index)
                tags[value[0]] = None
        if not side:
            return values, stamps
        main = np.ones(len(values), dtype=np.bool_)
        for tag_id, indices in side.items():
            main[indices] = False
            picked = None if stamps is None else stamps[indices]
            batch = ObjectBatch([values[i][1] for i in indices], picked)
            declared = _type_of(tag_id, tags)
            self._out.emit_side(tag_id, batch if declared is None else as_declared(batch, declared))
        rest = np.flatnonzero(main)
        return [values[i] for i in rest.tolist()], None if stamps is None else stamps[rest]


def _type_of(tag_id: str, tags: Iterable[OutputTag]) -> Declared | None:
    """What the tags of one side output declare, of which some may declare nothing."""
    types = {declared_records(tag.type_info) for tag in tags if tag.tag_id == tag_id}
    types.discard(None)
    if len(types) > 1:
        raise TypeMismatchError(
            f"side output '{tag_id}' got records under tags of different types: use one OutputTag"
        )
    return types.pop() if types else None


def _one_each(stamps: Timestamps, bounds: list[int]) -> Timestamps:
    """A timestamp for each value. Mostly each group has one value, and its timestamp is that."""
    ends = np.fromiter(bounds, dtype=np.int64, count=len(bounds))
    if ends[0] == 1 and ends[-1] == len(ends) and (ends[1:] > ends[:-1]).all():
        return stamps
    return np.repeat(stamps, np.diff(ends, prepend=0))


_first = itemgetter(0)


def _may_hold_side_outputs(values: list[Any]) -> bool:
    """Whether there can be pairs that start with an OutputTag among them: asked of all at once,
    because plain tuples are what functions yield most."""
    kinds = set(map(type, values))
    if tuple not in kinds:
        return False
    tuples = values if len(kinds) == 1 else (value for value in values if type(value) is tuple)
    try:
        firsts = set(map(type, map(_first, tuples)))
    except IndexError:  # an empty tuple among them
        return True
    return any(issubclass(kind, OutputTag) for kind in firsts)


def iterator(results: Any, what: str) -> Iterator[Any]:
    """What a function returned, to be taken bit by bit. TypeMismatchError if it is no iterable."""
    try:
        return iter(results)
    except TypeError as error:
        check_iterable(results, what, error)
        raise


def check_iterable(result: Any, what: str, error: TypeError) -> None:
    """Raise TypeMismatchError if a TypeError came from `result` not being iterable."""
    if not hasattr(result, "__iter__"):
        raise TypeMismatchError(
            f"{what} returned {result!r} ({type(result).__name__}), which is not iterable: yield "
            "results, or return a list of them"
        ) from error
