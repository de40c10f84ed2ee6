"""Columns of one type as another one that holds each of their values exactly; what a sum that was
rounded lacks."""

from __future__ import annotations

import pyarrow as pa

REST = "__rest"
"""How accumulators of floats end that are what rounded sums beside them lack (`WholeMean`). Sums of
checkpoints of before lack nothing that is known, so a missing one is 0; who keeps rounded sums, as
of floats, lets one go."""


def is_rest(name: str) -> bool:
    """Whether a stored column is one."""
    return name.startswith("acc.") and name.endswith(REST)


def with_rests(parts: list[pa.Table]) -> list[pa.Table]:
    """What several subtasks hold of one state, of which some may have gone on from a checkpoint of
    before while others had no record yet: with the rests that the others have."""
    most = max(parts, key=lambda part: part.num_columns)
    return [_with_rests(part, most.schema) for part in parts]


def _with_rests(part: pa.Table, wanted: pa.Schema) -> pa.Table:
    for at, field in enumerate(wanted):
        if is_rest(field.name) and field.name not in part.column_names:
            zeros = pa.repeat(pa.scalar(0, field.type), part.num_rows)
            part = part.add_column(min(at, part.num_columns), field, zeros)
    return part


def widened(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The column as `kind`; None if that may change what a value is.

    Whole numbers become wider ones, and doubles where all of them are exact; floats become doubles;
    text and bytes get longer offsets, times finer units; nulls become anything."""
    old = column.type
    if old == kind:
        return column
    if not _is_wider(old, kind):
        return None
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # a value that the new type does not hold exactly


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(old):
        return True
    if types.is_integer(old) and types.is_integer(new):
        signs = types.is_signed_integer(old), types.is_signed_integer(new)
        if signs[0] and not signs[1]:
            return False
        return bool(new.bit_width >= old.bit_width + (signs[0] != signs[1]))
    if types.is_integer(old) and types.is_float64(new):
        return True
    if types.is_floating(old) and types.is_floating(new):
        return bool(new.bit_width > old.bit_width)
    if types.is_decimal(old) and types.is_decimal(new):
        whole = new.precision - new.scale >= old.precision - old.scale
        return bool(whole and new.scale >= old.scale)
    return (str(old), str(new)) in _TEXTS or _is_finer(old, new)


_TEXTS = {
    ("string", "large_string"),
    ("binary", "large_binary"),
    ("large_string", "string"),
    ("large_binary", "binary"),
}
"""The same values in another layout; too long ones are refused by the cast."""

_UNITS = ("s", "ms", "us", "ns")


def _is_finer(old: pa.DataType, new: pa.DataType) -> bool:
    for is_kind in (pa.types.is_timestamp, pa.types.is_duration):
        if is_kind(old) and is_kind(new) and getattr(old, "tz", None) == getattr(new, "tz", None):
            return _UNITS.index(new.unit) >= _UNITS.index(old.unit)
    return False
