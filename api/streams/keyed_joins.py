"""Joins of two keyed streams: in event time of windows and intervals, regular, and temporal.

A join's two inputs are partitioned by key alike, so records with equal keys meet in one subtask.
Output columns: the left ones, then the right ones; see `core.joined_columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import ConfigurationError, GraphError
from ...core.row_kind import ROW_KIND
from ..functions.validation import is_expression
from ..specs.joins import (
    IntervalJoinSpec,
    JoinKind,
    JoinSides,
    RegularJoinSpec,
    TemporalJoinSpec,
    WindowJoinSpec,
)
from ..specs.records import OperatorSpec
from ..types.durations import Interval, to_millis
from ..windows.base import WindowAssigner
from ..windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from .sides import (
    TimeToLive,
    check_how,
    check_keys,
    check_one_of,
    equal_columns,
    side_schemas,
    to_ttl,
    to_ttls,
    two_inputs,
)
from .stream import Keyed, Out

if TYPE_CHECKING:
    import polars as pl


class KeyedJoins(Keyed[Out]):
    """Joins of a keyed stream with another; part of `KeyedStream`.

    how: "inner", "left", "right", "full", or the left records that have a partner ("semi") or none
    ("anti"). Null keys equal nothing: such records come out with nulls for the other side in outer
    joins, and of "anti". left_type, right_type: the columns of a side, as in `output_type`, where
    the program does not tell them and an outer join may have to write them as nulls. A right column
    whose name is taken gets `suffix`; a right key column of the left one's name is left out.
    """

    def window_join(
        self,
        other: Keyed[Out],
        window: WindowAssigner,
        how: str = "inner",
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> Out:
        """All pairs of records with equal keys in the same window, with `window_start` and
        `window_end` (int64 ms) appended; timestamp window end - 1. Results come when the watermark
        passes the window's end; records that come later than that are dropped and counted.

        `window`: tumbling or sliding event-time windows."""
        # A subclass may assign otherwise.
        if type(window) not in (TumblingEventTimeWindows, SlidingEventTimeWindows):
            raise ConfigurationError(
                "window_join: give TumblingEventTimeWindows or SlidingEventTimeWindows, not "
                f"{window!r}; other windows have no end that both sides share"
            )
        sides = _sides("window_join", self, other, how, left_type, right_type, suffix)
        spec = WindowJoinSpec(sides, window)
        return self._event_time_join(other, spec, "WindowJoin")

    def interval_join(
        self,
        other: Keyed[Out],
        lower: Interval,
        upper: Interval,
        how: str = "inner",
        lower_exclusive: bool = False,
        upper_exclusive: bool = False,
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> Out:
        """All pairs of records with equal keys whose event times fit: `lower <= right - left <=
        upper` (timedelta or ms; may be negative); timestamp the greater of the two. A pair comes
        out when its later record arrives; a record without partner (outer joins, "anti") with its
        own timestamp when the watermark says that none can come any more. For these joins and
        "semi" the output's watermark stays behind by as much. Late records (timestamp <= watermark)
        are dropped and counted."""
        low = to_millis(lower, "interval_join: lower") + bool(lower_exclusive)
        high = to_millis(upper, "interval_join: upper") - bool(upper_exclusive)
        if low > high:
            raise ConfigurationError(
                f"interval_join: no time lies between lower {lower!r} and upper {upper!r}"
            )
        sides = _sides("interval_join", self, other, how, left_type, right_type, suffix)
        spec = IntervalJoinSpec(sides, low, high)
        return self._event_time_join(other, spec, "IntervalJoin")

    def join(
        self,
        other: Keyed[Out],
        how: JoinKind = "inner",
        *,
        ttl: TimeToLive | tuple[TimeToLive | None, TimeToLive | None] | None = None,
        where: pl.Expr | None = None,
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> Out:
        """Each record with every record of `other` that has its key, whenever they come.

        Rows are kept for ever, or for `ttl` after their arrival; a pair is one for the left and one
        for the right side, of which either may be None. By processing time, or, with a
        `StateTtlConfig`, by event time: then two rows meet if neither had expired at the time of
        the other. `where` is a further condition over the joined columns (SQL's `ON ... AND ...`).
        Inputs may be changelogs. An inner join of streams without row kinds gives a stream without;
        every other join gives a changelog (`__row_kind`, +I and -D). Null keys match nothing.

        `left_type`, `right_type`: the columns of a side, where an outer join cannot know them.
        """
        _check_keyed("join", self, other)
        check_how("join", how)
        if where is not None and not is_expression(where):
            raise ConfigurationError(f"join: where must be a polars expression, is {where!r}")
        spec = RegularJoinSpec(
            self._key,
            other._key,
            how,
            side_schemas("join", self, other, how, left_type, right_type),
            _shared(self, other),
            to_ttls("join", ttl),
            where,
            suffix,
        )
        return self._join(other, spec, f"Join({how})")

    def temporal_join(
        self,
        versions: Keyed[Out],
        how: Literal["inner", "left"] = "inner",
        *,
        ttl: TimeToLive | None = None,
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> Out:
        """Each record with the version of its key that was valid at its time: the record of
        `versions` with the greatest timestamp that is not greater (SQL's FOR SYSTEM_TIME AS OF).

        Results come when the watermark has passed the record's time, in order of time. In a
        changelog of versions, -D ends the validity of the version before. A version is kept until
        the watermark has passed a later one; with `ttl`, no longer than that after its arrival (of
        processing time), or after its own time if `ttl` is a `StateTtlConfig` of event time.
        """
        _check_keyed("temporal_join", self, versions)
        check_one_of("temporal_join", how, ("inner", "left"))
        spec = TemporalJoinSpec(
            self._key,
            versions._key,
            how,
            side_schemas("temporal_join", self, versions, how, left_type, right_type),
            _shared(self, versions),
            to_ttl("temporal_join", ttl),
            suffix,
        )
        return self._join(versions, spec, f"TemporalJoin({how})")

    def _event_time_join(
        self, other: Keyed[Out], spec: WindowJoinSpec | IntervalJoinSpec, name: str
    ) -> Out:
        _ = spec.schema  # Names that clash are an error here, not in a task.
        return self._join(other, spec, f"{name}({spec.sides.how})")

    def _join(self, other: Keyed[Out], spec: OperatorSpec, name: str) -> Out:
        return self._apply(spec, name, two_inputs(self, other))


def _sides(
    method: str,
    left: Keyed[Any],
    right: Any,
    how: str,
    left_type: Any,
    right_type: Any,
    suffix: str,
) -> JoinSides:
    if not isinstance(right, Keyed):
        raise ConfigurationError(
            f"{method}: expected a keyed stream to join with, got {right!r}; use key_by on it"
        )
    if not isinstance(suffix, str):
        raise ConfigurationError(f"{method}: the suffix must be text, is {suffix!r}")
    kind = check_how(method, how)
    check_keys(method, left._key, right._key)
    schemas = side_schemas(method, left, right, kind, left_type, right_type)
    for side, schema in zip(("left", "right"), schemas, strict=True):
        if schema is not None and ROW_KIND in schema.names:
            raise GraphError(
                f"{method}: the {side} stream is a changelog; joins in event time take streams "
                "that only insert: use join(...), or windows instead of the aggregate before"
            )
    equal = tuple(zip(*equal_columns(left._key, right._key), strict=True))
    return JoinSides(left._key, right._key, kind, *schemas, equal, suffix)


def _check_keyed(method: str, left: Keyed[Any], right: Any) -> None:
    if not isinstance(right, Keyed):
        raise ConfigurationError(f"{method}: expected a keyed stream (key_by), got {right!r}")
    check_keys(method, left._key, right._key)


def _shared(left: Keyed[Any], right: Keyed[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    mine, theirs = equal_columns(left._key, right._key)
    return tuple(mine), tuple(theirs)
