"""Which operators of a job are recorded, looked at before it is submitted."""

from __future__ import annotations

from ...core.errors import ConfigurationError
from ...engine.graph.model import ChainedOperator, JobGraph
from ..specs.async_io import AsyncSpec
from ..specs.joins import BroadcastJoinSpec


def check_recorded(graph: JobGraph) -> None:
    """ConfigurationError if a name that is to be recorded is no operator's, or of one that cannot
    be run again on what it got."""
    record = graph.config.record
    if record.path is None:
        if record.operators:
            raise ConfigurationError(
                "record: operators are chosen and no path: say where to, by env.record or "
                "strom.record.path"
            )
        return
    operators = [one for vertex in graph.vertices for one in vertex.operators]
    fit = [one for one in operators if _refusal(one) is None]
    there = ", ".join(sorted({f"'{one.uid if one.named else one.name}'" for one in fit}))
    if not record.operators:
        raise ConfigurationError(f"record: no operator is chosen; there are {there or 'none'}")
    for name in record.operators:
        found = [one for one in operators if name in (one.uid, one.name, str(one.operator_id))]
        if not found:
            raise ConfigurationError(f"record: there is no operator '{name}': there are {there}")
        for one in found:
            why = _refusal(one)
            if why is not None:
                raise ConfigurationError(f"record: operator '{name}' {why}; there are {there}")


def _refusal(operator: ChainedOperator) -> str | None:
    if operator.is_source:
        return "is a source, which gets no records: choose one behind it"
    if operator.is_sink:
        return "is a sink, which would write again: choose the one before it"
    if isinstance(operator.spec, AsyncSpec):
        return "waits for answers from elsewhere, which are not recorded: choose the one before it"
    if isinstance(operator.spec, BroadcastJoinSpec):
        return "has a table that one of its subtasks stores for all: choose the one behind it"
    return None
