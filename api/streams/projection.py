"""Some fields of a stream of tuples or rows."""

from __future__ import annotations

from ...core.errors import ConfigurationError, GraphError
from ...core.row_kind import ROW_KIND
from ..specs.columns import NamedColumn
from ..specs.project import ProjectSpec, is_positional
from ..specs.records import ExpressionSpec
from .stream import Out, Stream, known_schema


class Projection(Stream[Out]):
    """Part of `DataStream`."""

    def project(self, *field_indexes: int) -> Out:
        """The fields at these positions from 0, in this order; for tuples and rows. Columns stay
        columns, under their names; those of tuples are counted anew (f0, f1, ...).

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([("a", 1, 2.5)]).project(2, 0).execute_and_collect(limit=1)
        [(2.5, 'a')]
        """
        for at in field_indexes:
            if isinstance(at, bool) or not isinstance(at, int) or at < 0:
                raise ConfigurationError(f"project: expected positions from 0, got {at!r}")
        if not field_indexes:
            raise ConfigurationError("project: name at least one position")
        call = f"project({', '.join(map(str, field_indexes))})"
        schema = known_schema(self)
        if schema is None:
            return self._apply(ProjectSpec(field_indexes), "Project")
        names = [name for name in schema.names if name != ROW_KIND]
        if max(field_indexes) >= len(names):
            raise GraphError(f"{call}: the stream has only {len(names)} fields, {', '.join(names)}")
        if is_positional(schema.names):
            return self._apply(ProjectSpec(field_indexes), "Project")
        chosen = [names[at] for at in field_indexes]
        if len(set(chosen)) < len(chosen):
            raise GraphError(
                f"{call}: a column cannot come twice under its name, {chosen}: use select() with "
                "another name for one of them"
            )
        columns = tuple(NamedColumn(name, name) for name in chosen)
        return self._apply(ExpressionSpec("select", columns), "Project")
