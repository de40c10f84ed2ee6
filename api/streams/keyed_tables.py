"""What a keyed stream offers beyond windows: tables per key that change for ever.

Results of `aggregate`, `top_n` and `deduplicate(keep="last")` are changelogs: see `core.row_kind`.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, get_args

from ...core.errors import ConfigurationError
from ...core.keys import ColumnKey, FunctionKey
from ...core.row_kind import ROW_KIND
from ...state.ttl import Lifetime
from ..aggregate_kinds import names_of
from ..aggregates import Aggregate
from ..functions.validation import require_positive, require_text
from ..specs.columns import to_order
from ..specs.tables import (
    Changelog,
    DeduplicateSpec,
    GroupAggregateSpec,
    OverOrder,
    OverSpec,
    TopNSpec,
)
from ..types.durations import Interval, to_ms, to_timedelta
from .sides import TimeToLive, to_ttl
from .stream import Keyed, Out

MAX_N = 10_000
"""Top-n keeps arrays of n entries per key, in which new ones are inserted."""

MAX_ROWS = 100_000
"""Frames of over; the rows of a key are gathered with each of its batches."""


class KeyedTables(Keyed[Out]):
    """Part of `KeyedStream`. All need keys that are columns or polars expressions."""

    def aggregate(
        self,
        *,
        changelog: Changelog = "retract",
        ttl: TimeToLive | None = None,
        **aggregates: Aggregate,
    ) -> Out:
        """Built-in aggregates of all records of a key so far, by output column:
        `aggregate(n=count(), total=sum_("v"))`.

        The result is a changelog of the key columns and the aggregates: per batch of input and key
        whose result changed, +I for a new key, -U and +U for a known one, -D for one whose records
        were all retracted. With changelog="upsert" there is no -U: the reader replaces by key. The
        input may be a changelog itself. ttl: forget keys that had no records for so long (of
        processing time, or with a `StateTtlConfig` of event time); nothing is taken back for them.

        >>> from strom import StreamExecutionEnvironment, sum_
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection([{"w": "a", "n": 1}, {"w": "a", "n": 2}])
        >>> words.key_by("w").aggregate(total=sum_("n")).execute_and_collect(limit=1)
        [Row(w='a', total=3, __row_kind=0)]
        """
        self._require_columns("aggregate")
        if changelog not in get_args(Changelog):
            raise ConfigurationError(
                f'aggregate: changelog is "retract" or "upsert", not {changelog!r}'
            )
        items = check_aggregates("aggregate", aggregates, self._key_names())
        spec = GroupAggregateSpec(self._key, items, changelog, to_ttl("aggregate", ttl))
        return self._apply(spec, f"GroupAggregate({', '.join(aggregates)})")

    def top_n(
        self,
        n: int,
        order_by: Any,
        rank: str | None = None,
        *,
        ttl: TimeToLive | None = None,
    ) -> Out:
        """The `n` records of each key that come first in `order_by`, ties in order of arrival.

        A changelog of the records: +I for one that enters, -D for one that leaves. With `rank` they
        get a column of that name with their place from 1, and each change of a place is -U and +U.
        order_by: a column name, ("price", "desc"), or a list of these. Nulls come last. ttl: forget
        keys among whose first `n` no record came for so long (of processing time, or with a
        `StateTtlConfig` of event time), or over a changelog none at all; nothing is taken back for
        them.
        """
        self._require_columns("top_n")
        require_positive("top_n", "n", n, MAX_N)
        if rank is not None:
            require_text("top_n", "rank", rank)
        spec = TopNSpec(self._key, n, to_order("top_n", order_by), rank, to_ttl("top_n", ttl))
        return self._apply(spec, f"TopN({n})")

    def deduplicate(
        self, keep: str = "first", order_by: Any = None, *, ttl: TimeToLive | None = None
    ) -> Out:
        """One record per key: the first or last to arrive, or in `order_by`.

        keep="first" without order_by only inserts. Otherwise the result is a changelog: +I for a
        new key, -U and +U when another record takes the place. Of records equal in order_by the
        first or last to arrive is kept; nulls are worse than any value either way. ttl: forget keys
        whose record was taken so long ago (of processing time, or with a `StateTtlConfig` of event
        time), or over a changelog that had none for so long: the next one is their first again, and
        nothing is taken back.
        """
        self._require_columns("deduplicate")
        if keep != "first" and keep != "last":
            raise ConfigurationError(f'deduplicate: keep is "first" or "last", not {keep!r}')
        order = () if order_by is None else to_order("deduplicate", order_by)
        which: Literal["first", "last"] = "last" if keep == "last" else "first"
        spec = DeduplicateSpec(self._key, which, order, to_ttl("deduplicate", ttl))
        return self._apply(spec, f"Deduplicate({keep})")

    def over(
        self,
        rows: int | None = None,
        range: Interval | None = None,
        order: OverOrder = "event_time",
        *,
        ttl: TimeToLive | None = None,
    ) -> OverStream[Out]:
        """Aggregates over the records of the same key up to each record; see `OverStream`.

        rows: the last so many, itself included. range: those at most so long before it. Neither:
        all so far. order="event_time": in time order, out when the watermark passes (records of
        equal time in order of arrival; by range they see each other); late records are dropped and
        counted. order="arrival": at once; by range of processing time. ttl: forget keys that had no
        records for so long (of processing time, or with a `StateTtlConfig` of event time): the next
        one's frame begins with itself. A range bounds what is kept by itself.
        """
        self._require_columns("over")
        if rows is not None and range is not None:
            raise ConfigurationError("over: give rows or range, not both")
        if rows is not None:
            require_positive("over", "rows", rows, MAX_ROWS)
        if order not in get_args(OverOrder):
            raise ConfigurationError(f'over: order is "event_time" or "arrival", not {order!r}')
        range_ms = None if range is None else to_ms(to_timedelta(range, "over: range"))
        life = to_ttl("over", ttl)
        if life is not None and range_ms is not None:
            raise ConfigurationError(
                "over: a range of time keeps what is younger and nothing else; leave out ttl"
            )
        return OverStream(self, rows, range_ms, order, life)

    def _require_columns(self, method: str) -> None:
        if isinstance(self._key, FunctionKey):
            raise ConfigurationError(
                f"{method}: the key is the function {self._key.describe()}; use column names or "
                "polars expressions in key_by, because the result has key columns"
            )

    def _key_names(self) -> tuple[str, ...]:
        return self._key.names if isinstance(self._key, ColumnKey) else ()


class OverStream(Generic[Out]):
    """What `over` gives: call `aggregate`."""

    def __init__(
        self,
        stream: Keyed[Out],
        rows: int | None,
        range_ms: int | None,
        order: OverOrder,
        ttl: Lifetime | None = None,
    ) -> None:
        self._stream = stream
        self._rows = rows
        self._range_ms = range_ms
        self._order = order
        self._ttl = ttl

    def aggregate(self, **aggregates: Aggregate) -> Out:
        """Each record once, with these columns appended: count, sum_, mean, min_, max_, first or
        last of a column or expression over the records chosen by `over`."""
        items = check_aggregates("over", aggregates, ())
        frame = (self._rows, self._range_ms, self._order, self._ttl)
        spec = OverSpec(self._stream._key, items, *frame)
        return self._stream._apply(spec, f"Over({', '.join(aggregates)})")


def offered_by(method: str) -> list[str]:
    """The kinds of aggregates that `aggregate` or `over` keeps up to date record by record."""
    return sorted(names_of(lambda kind: kind.over if method == "over" else kind.running))


def check_aggregates(
    method: str, aggregates: dict[str, Any], taken: tuple[str, ...]
) -> tuple[tuple[str, Aggregate], ...]:
    """The aggregates as a spec holds them; ConfigurationError naming what is wrong."""
    if not aggregates:
        raise ConfigurationError(f"{method}: give aggregates by output column, such as n=count()")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise ConfigurationError(
                f"{method}: {name} must be a built-in aggregate such as count() or "
                f'max_("price"), is {aggregate!r}'
            )
        offered = offered_by(method)
        if aggregate.kind not in offered:
            raise ConfigurationError(
                f"{method}: {aggregate.describe()} is an aggregate of windows only; here there are "
                f"{offered}"
            )
        if name in (*taken, ROW_KIND):
            raise ConfigurationError(
                f"{method}: the output column '{name}' is already the result's; choose another name"
            )
    return tuple(aggregates.items())
