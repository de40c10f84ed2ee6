"""The two sides of a join: what both must have in common, checked when the program is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast, get_args

import pyarrow as pa

from ...core.errors import ConfigurationError, GraphError
from ...core.key_types import check_comparable
from ...core.keys import ColumnKey, ExpressionKey, FunctionKey, KeySelector
from ...engine.graph.transformation import Input
from ...state.ttl import Lifetime, StateTtlConfig
from ..specs.joins import JoinKind
from ..specs.schemas import known_keys
from ..types.durations import Interval, to_ms, to_timedelta
from ..types.type_info import schema_of
from .stream import Keyed, Stream, known_schema


def two_inputs(left: Stream[Any], right: Stream[Any]) -> tuple[Input, ...]:
    """The inputs of an operator that reads `left` at port 0 and `right` at port 1, partitioned as
    the streams are. GraphError if they belong to different environments."""
    if left._env is not right._env:
        raise GraphError("a join: the streams belong to different environments")
    lefts = [replace(one, port=0) for one in left._inputs]
    rights = [replace(one, port=1) for one in right._inputs]
    return (*lefts, *rights)


def check_how(method: str, how: str) -> JoinKind:
    """`how` if there is such a join."""
    if how not in get_args(JoinKind):
        raise ConfigurationError(f"{method}: how must be one of {get_args(JoinKind)}, is {how!r}")
    return cast(JoinKind, how)


def key_width(key: KeySelector) -> int | None:
    """Number of key columns; None for keys that are no columns."""
    match key:
        case ColumnKey(names):
            return len(names)
        case ExpressionKey(expressions):
            return len(expressions)
        case FunctionKey():
            return None
    return 1


def check_keys(method: str, left: KeySelector, right: KeySelector) -> None:
    """ConfigurationError unless both are column keys of one width."""
    widths = [key_width(left), key_width(right)]
    for side, width, key in zip(("left", "right"), widths, (left, right), strict=True):
        if width is None:
            raise ConfigurationError(
                f"{method}: the {side} stream is keyed by the Python function {key.describe()}; a "
                'join needs keys that are columns: key_by("name") or key_by(polars expressions)'
            )
    if widths[0] != widths[1]:
        raise ConfigurationError(
            f"{method}: the left stream has {widths[0]} key columns ({left.describe()}), the right "
            f"one {widths[1]} ({right.describe()}); a join needs equally many"
        )


def equal_columns(left: KeySelector, right: KeySelector) -> tuple[list[str], list[str]]:
    """Names of the key columns that are columns on both sides, pair by pair, as `JoinedColumns.of`
    takes them."""
    pairs = zip(_key_names(left), _key_names(right), strict=False)
    named = [(mine, other) for mine, other in pairs if mine is not None and other is not None]
    return [mine for mine, _ in named], [other for _, other in named]


def _key_names(key: KeySelector) -> Sequence[str | None]:
    match key:
        case ColumnKey(names):
            return names
        case ExpressionKey(expressions):
            return [e.meta.output_name() if e.meta.is_column() else None for e in expressions]
    return []


def side_schemas(
    method: str,
    left: Keyed[Any],
    right: Keyed[Any],
    how: JoinKind,
    left_type: Any = None,
    right_type: Any = None,
) -> tuple[pa.Schema | None, pa.Schema | None]:
    """What is known of the columns of both sides: declared, else told by the program.

    GraphError where an outer join needs columns that are not known; TypeMismatchError where the
    keys can never be equal."""
    schemas = (_declared(left, left_type), _declared(right, right_type))
    needed = {"left": (False, True), "right": (True, False), "full": (True, True)}
    for side, schema, need in zip(
        ("left", "right"), schemas, needed.get(how, (False, False)), strict=True
    ):
        if need and schema is None:
            raise GraphError(
                f"{method}: a {how} join writes the columns of the {side} side as nulls, and they "
                f"are not known before the job runs; declare them with {side}_type=..., or give "
                "the function that makes them an output_type"
            )
    keys = known_keys(schemas[0], left._key), known_keys(schemas[1], right._key)
    if keys[0] is not None and keys[1] is not None:
        check_comparable(keys[0], keys[1], method)
    return schemas


def _declared(stream: Stream[Any], declared: Any) -> pa.Schema | None:
    return known_schema(stream) if declared is None else schema_of(declared)


TimeToLive = Interval | StateTtlConfig
"""How long an operator of this package keeps what is not written: of processing time, unless a
config says otherwise."""


def to_ttl(method: str, ttl: TimeToLive | None) -> Lifetime | None:
    """A time to live of at least 1 ms. ConfigurationError for what an operator cannot do."""
    if ttl is None:
        return None
    event = False
    if isinstance(ttl, StateTtlConfig):
        if not ttl.is_enabled():
            return None
        times = StateTtlConfig.TtlTimeCharacteristic
        event = ttl.get_ttl_time_characteristic() is times.EventTime
        plain = StateTtlConfig.new_builder(ttl.get_ttl()).build()
        for what, chosen, known in (
            ("lives on", ttl.get_update_type(), plain.get_update_type()),
            ("is seen", ttl.get_state_visibility(), plain.get_state_visibility()),
        ):
            if chosen is not known:
                raise ConfigurationError(
                    f"{method}: what has a time to live there {what} by {known}, not {chosen}; "
                    "other settings are for state of one's own"
                )
        ttl = ttl.get_ttl()
    ms = to_ms(to_timedelta(ttl, f"{method}: ttl"))
    if ms < 1:
        raise ConfigurationError(f"{method}: a time to live must be at least 1 ms, is {ttl!r}")
    return Lifetime(ms, event)


def to_ttls(
    method: str, ttl: TimeToLive | tuple[TimeToLive | None, TimeToLive | None] | None
) -> tuple[Lifetime | None, Lifetime | None]:
    """Those of the left and the right side: one for both, or a pair. ConfigurationError if they go
    by different times."""
    pair = ttl if isinstance(ttl, tuple) else (ttl, ttl)
    if len(pair) != 2:
        raise ConfigurationError(
            f"{method}: ttl is one time to live, or a pair (left, right), not {ttl!r}"
        )
    left, right = to_ttl(f"{method}, left side", pair[0]), to_ttl(f"{method}, right side", pair[1])
    if left is not None and right is not None and left.event != right.event:
        raise ConfigurationError(
            f"{method}: one side's rows expire by event time and the other's by processing time: "
            "use the same for both"
        )
    return left, right


def check_one_of(method: str, how: str, kinds: tuple[str, ...]) -> None:
    """ConfigurationError unless `how` is one of `kinds`."""
    if how not in kinds:
        raise ConfigurationError(f"{method}: how must be one of {kinds}, is {how!r}")
