"""The names of `pyflink.common.types`."""

from ..core.row import Row as Row, RowKind as RowKind
