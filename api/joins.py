"""Joins of two keyed streams in event time: windows and intervals.

A join's two inputs are partitioned by key alike, so records with equal keys meet in one subtask.
Output columns: the left ones, then the right ones; see `core.joined_columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import pyarrow as pa

from ..core.errors import ConfigurationError, GraphError
from ..core.key_types import check_comparable
from ..core.keys import ColumnKey, ExpressionKey, FunctionKey, KeySelector
from ..core.row_kind import ROW_KIND
from ..engine.graph.transformation import Input
from .intervals import Interval, to_millis
from .join_specs import IntervalJoinSpec, JoinSides, WindowJoinSpec
from .schemas import known_keys, known_schema
from .types import schema_of

if TYPE_CHECKING:
    from .data_stream import DataStream
    from .keyed_stream import KeyedStream
    from .windows import WindowAssigner

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


def two_inputs(left: DataStream, right: DataStream) -> tuple[Input, ...]:
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
    left: KeyedStream,
    right: KeyedStream,
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


def _declared(stream: DataStream, declared: Any) -> pa.Schema | None:
    return known_schema(stream) if declared is None else schema_of(declared)


class KeyedJoins:
    """Joins of a keyed stream with another; `KeyedStream` inherits them.

    how: "inner", "left", "right", "full", or the left records that have a partner ("semi") or none
    ("anti"). Null keys equal nothing: such records come out with nulls for the other side in outer
    joins, and of "anti". left_type, right_type: the columns of a side, as in `output_type`, where
    the program does not tell them and an outer join may have to write them as nulls. A right column
    whose name is taken gets `suffix`; a right key column of the left one's name is left out.
    """

    def window_join(
        self,
        other: KeyedStream,
        window: WindowAssigner,
        how: str = "inner",
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> DataStream:
        """All pairs of records with equal keys in the same window, with `window_start` and
        `window_end` (int64 ms) appended; timestamp window end - 1. Results come when the watermark
        passes the window's end; records that come later than that are dropped and counted.

        `window`: tumbling or sliding event-time windows."""
        from .windows import SlidingEventTimeWindows, TumblingEventTimeWindows

        if not isinstance(window, (TumblingEventTimeWindows, SlidingEventTimeWindows)):
            raise ConfigurationError(
                "window_join: give TumblingEventTimeWindows or SlidingEventTimeWindows, not "
                f"{window!r}; other windows have no end that both sides share"
            )
        sides = _sides("window_join", self, other, how, left_type, right_type, suffix)
        spec = WindowJoinSpec(sides, window)
        return _joined(self, other, spec, "WindowJoin")

    def interval_join(
        self,
        other: KeyedStream,
        lower: Interval,
        upper: Interval,
        how: str = "inner",
        lower_exclusive: bool = False,
        upper_exclusive: bool = False,
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> DataStream:
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
        return _joined(self, other, spec, "IntervalJoin")


def _sides(
    method: str,
    left: Any,
    right: Any,
    how: str,
    left_type: Any,
    right_type: Any,
    suffix: str,
) -> JoinSides:
    from .keyed_stream import KeyedStream

    if not isinstance(right, KeyedStream):
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


def _joined(
    left: Any,
    right: KeyedStream,
    spec: WindowJoinSpec | IntervalJoinSpec,
    name: str,
) -> DataStream:
    from .data_stream import DataStream

    _ = spec.schema  # Names that clash are an error here, not in a task.
    inputs = two_inputs(left, right)
    operator = left._env._add_operator(spec, f"{name}({spec.sides.how})", inputs)
    return DataStream(left._env, (Input(operator),), operator)


__all__ = [
    "JoinKind",
    "KeyedJoins",
    "check_how",
    "check_keys",
    "equal_columns",
    "side_schemas",
    "two_inputs",
]
