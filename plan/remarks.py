"""Remarks on an operator, for `explain()`."""

from __future__ import annotations

from dataclasses import replace

from ..engine.graph.model import StreamNode


def remarked(node: StreamNode, *remarks: str) -> StreamNode:
    """The node with these remarks behind those it has; as it is, if its implementation is not
    known."""
    made = node.implementation
    if made is None or not remarks:
        return node
    return replace(node, implementation=replace(made, remarks=(*made.remarks, *remarks)))
