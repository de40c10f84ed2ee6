"""Names and columns of joined records, where operators look for them; see `core.joined_columns`."""

from ...core.joined_columns import NO_ROW, Int64s, JoinedColumns, plain_columns

__all__ = ["NO_ROW", "Int64s", "JoinedColumns", "plain_columns"]
