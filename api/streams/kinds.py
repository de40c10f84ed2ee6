"""One kind of records, of a stream of several."""

from __future__ import annotations

import pyarrow as pa

from ...core.errors import GraphError
from ...core.row_kind import ROW_KIND
from ...core.union_type import UnionType, rows_schema
from ..functions.validation import require_text
from ..specs.kinds import KindSpec, union_columns
from ..types.declared import Declared
from .stream import Out, Stream, known_records


class Kinds(Stream[Out]):
    """Part of `DataStream`."""

    def of_kind(self, kind: str, column: str | None = None) -> Out:
        """The records of one kind, as rows of that kind, at their times. For streams of several
        kinds (`Types.UNION`): `OfKind`s, or records with a `column` of them, which need not be
        named if it is the only one. Their other columns are left out.

        On columns the rows of a kind lie together already, and nothing is copied.

        >>> from strom import OfKind, Row, StreamExecutionEnvironment, Types
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> kinds = {"join": {"user": str}, "say": {"user": str, "text": str}}
        >>> events = env.from_collection(
        ...     [OfKind("join", ("ann",)), OfKind("say", ("ann", "hi")), OfKind("join", ("bo",))],
        ...     Types.UNION(kinds),
        ... )
        >>> events.of_kind("join").execute_and_collect(limit=2)
        [Row(user='ann'), Row(user='bo')]
        """
        require_text("of_kind", "kind", kind)
        known = known_records(self)
        schema = None
        if known is not None:
            column, union = _union_of(known, kind, column)
            if kind not in union.kinds:
                raise GraphError(
                    f"of_kind({kind!r}): the stream has the kinds {', '.join(union.kinds)}"
                )
            schema = rows_schema(union.rows_type(kind))
        return self._apply(KindSpec(kind, column, schema), "Of kind")


def _union_of(known: Declared, kind: str, column: str | None) -> tuple[str | None, UnionType]:
    """The column that is meant, None for the records themselves, and its type."""
    call = f"of_kind({kind!r}{'' if column is None else f', {column!r}'})"
    if not isinstance(known, pa.Schema):
        if column is None and isinstance(known.info.arrow, UnionType):
            return None, known.info.arrow
        raise GraphError(f"{call}: records are of type {known.info}, not of several kinds")
    if ROW_KIND in known.names:
        raise GraphError(f"{call}: a changelog has no records of several kinds")
    found = union_columns(known)
    if column is None and len(found) != 1:
        which = f"several, {', '.join(found)}: name one" if found else "none (Types.UNION)"
        raise GraphError(f"{call}: of columns of several kinds the stream has {which}")
    name = found[0] if column is None else column
    if name not in found:
        has = ", ".join(known.names)
        raise GraphError(f"{call}: {name!r} is no column of several kinds; the stream has {has}")
    return name, known.field(name).type
