"""Remarks on an operator, for `explain()`."""

from __future__ import annotations

from dataclasses import replace

from ..engine.graph.model import StreamNode


def remarked(node: StreamNode, *remarks: str) -> StreamNode:
    """The node with these remarks behind those it has, each once; as it is, if its implementation
    is not known."""
    made = node.implementation
    if made is None:
        return node
    all_of_them = tuple(dict.fromkeys((*made.remarks, *remarks)))
    return replace(node, implementation=replace(made, remarks=all_of_them))
