"""Collects what user functions yield and sends it as batches, main and side outputs apart.

A hot loop appends results to `values` and, after each group of results that share a timestamp, the
number of values so far to `bounds`; everything else happens once per batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.functions.user_functions import OutputTag
from ...core.batch import ObjectBatch, Timestamps, to_columns
from ...core.errors import TypeMismatchError
from ..base import Output


class Collector:
    """Between two flushes either every group has a timestamp or none has.

    schema: main output becomes columns of it. chunk: `full` turns true at so many values.
    """

    def __init__(self, out: Output, schema: pa.Schema | None, chunk: int) -> None:
        self._out = out
        self._schema = schema
        self._chunk = chunk
        self.values: list[Any] = []
        self.bounds: list[int] = []
        """End of each group within `values`; never decreases."""
        self._stamps: list[int] = []

    def collect(self, results: Iterable[Any] | None, stamp: int) -> None:
        """One group of results with one timestamp; sends a batch when there are many.

        Raises TypeMismatchError if `results` is not iterable."""
        if results is None:
            return
        values = self.values
        try:
            values.extend(results)
        except TypeError as error:
            check_iterable(results, "the function", error)
            raise
        self.bounds.append(len(values))
        self._stamps.append(stamp)
        if len(values) >= self._chunk:
            self.flush()

    def flush(self) -> None:
        """Send what `collect` gathered."""
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
            self._out.emit(batch if self._schema is None else to_columns(batch, self._schema))

    def _send_side_outputs(
        self, values: list[Any], stamps: Timestamps | None
    ) -> tuple[list[Any], Timestamps | None]:
        """What remains for the main output."""
        side: dict[str, list[int]] = {}
        for index, value in enumerate(values):
            if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
                side.setdefault(value[0].tag_id, []).append(index)
        if not side:
            return values, stamps
        main = np.ones(len(values), dtype=np.bool_)
        for tag, indices in side.items():
            main[indices] = False
            picked = None if stamps is None else stamps[indices]
            self._out.emit_side(tag, ObjectBatch([values[i][1] for i in indices], picked))
        rest = np.flatnonzero(main)
        return [values[i] for i in rest.tolist()], None if stamps is None else stamps[rest]


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


def check_iterable(result: Any, what: str, error: TypeError) -> None:
    """Raise TypeMismatchError if a TypeError came from `result` not being iterable."""
    if not hasattr(result, "__iter__"):
        raise TypeMismatchError(
            f"{what} returned {result!r} ({type(result).__name__}), which is not iterable: yield "
            "results, or return a list of them"
        ) from error
