"""Which operators of a job keep their state elsewhere than the job does."""

from __future__ import annotations

import difflib
from dataclasses import replace

from ...core.errors import ConfigurationError
from ...engine.graph.model import StreamGraph, StreamNode


def with_backends(graph: StreamGraph) -> StreamGraph:
    """The graph, each operator with the backend that the configuration has for its uid, unless the
    program chose one (`set_state_backend`). ConfigurationError if there is no operator of a uid, or
    if that keeps no keyed state."""
    chosen = graph.config.state.by_uid
    if not chosen:
        return graph
    nodes = {node.uid: node for node in graph.nodes if node.uid is not None}
    for uid in chosen:
        _check(uid, nodes)
    return replace(graph, nodes=tuple(_with_backend(node, chosen) for node in graph.nodes))


def _check(uid: str, nodes: dict[str, StreamNode]) -> None:
    node = nodes.get(uid)
    if node is not None and node.spec.keeps_keyed_state:
        return
    keyed = [one for one, found in nodes.items() if found.spec.keeps_keyed_state]
    near = difflib.get_close_matches(uid, keyed, 1, 0.0)
    hint = f": did you mean '{near[0]}'?" if near else ", and none that keeps keyed state has a uid"
    what = (
        f"there is no operator with the uid '{uid}'"
        if node is None
        else f"operator '{node.name}' with the uid '{uid}' keeps no keyed state"
    )
    raise ConfigurationError(f"a state backend is set by uid, but {what}{hint}")


def _with_backend(node: StreamNode, chosen: dict[str, str]) -> StreamNode:
    backend = chosen.get(node.uid or "")
    if backend is None or node.state_backend is not None:
        return node
    return replace(node, state_backend=backend)
