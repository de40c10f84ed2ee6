"""What may be cached."""

from __future__ import annotations

from typing import Any

from ...core.errors import ConfigurationError, GraphError
from ...engine.graph.transformation import Input, Transformation
from ..specs.changelogs import upserts_among
from ..specs.records import SourceSpec


def check_cacheable(inputs: tuple[Input, ...]) -> None:
    """ConfigurationError naming a source without end that the inputs come from, GraphError for a
    changelog that loses its meaning where nobody sees the operator that made it."""
    for operator in _sources(inputs):
        source: Any = operator.spec.source
        if not source.bounded:
            raise ConfigurationError(
                f"cache: the stream comes from '{operator.name}', which has no end, so that there "
                "would never be all of it to keep: cache bounded streams only"
            )
    upserts = upserts_among(inputs)
    if upserts is not None:
        raise GraphError(
            f"cache: the stream is the upsert changelog of '{upserts}', which only readers that "
            'know its key read rightly: cache it with changelog="retract", or cache what reads it'
        )


def _sources(inputs: tuple[Input, ...]) -> list[Transformation]:
    found: dict[int, Transformation] = {}
    pending = [one.source for one in inputs]
    while pending:
        node = pending.pop()
        if node.id not in found:
            found[node.id] = node
            pending.extend(one.source for one in node.inputs)
    return [node for _, node in sorted(found.items()) if isinstance(node.spec, SourceSpec)]
