"""What is told of a plan where the program alone tells the columns of its streams.

For `explain()` only: a source may open a file to say which columns it has. What runs is the same.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ..api.specs.async_io import AsyncMapBatchesSpec
from ..api.specs.records import (
    ExpressionSpec,
    FilterSpec,
    MapBatchesSpec,
    MapSpec,
    RollingSpec,
)
from ..api.specs.windows import WindowSpec
from ..core.errors import StromError
from ..core.keys import FunctionKey
from ..engine.graph.implementation import Implementation
from ..engine.graph.model import StreamGraph, StreamNode
from .combining_groups import CombineGroupsSpec, foretold_groups
from .combining_types import foretold as foretold_combining
from .compiled import foretold as foretold_function
from .compiled import foretold_key
from .local_combining import LocalCombineSpec
from .remarks import remarked
from .rolling import FIRST_BATCH, foretold

OBJECTS = (
    "its columns are not known: Python objects are turned into columns batch by batch (declare "
    "output_type where they are made)"
)
ON_COLUMNS = (ExpressionSpec, MapBatchesSpec, AsyncMapBatchesSpec)
"""Operators of batches that turn objects into columns."""


def foretell(graph: StreamGraph) -> StreamGraph:
    """The plan, with what the first batch will decide decided where the columns are known, and
    remarks where Python objects may come to operators that work on columns."""
    columns = _Columns(graph)
    compiles = graph.config.compile_functions
    nodes = (_foretold(node, columns, compiles) for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def _foretold(node: StreamNode, columns: _Columns, compiles: bool) -> StreamNode:
    made = node.implementation
    if made is None or made.kind == "rows" or node.is_source or node.is_sink:
        return node
    inputs = columns.inputs(node.id)
    if isinstance(node.spec, LocalCombineSpec | CombineGroupsSpec):
        return _foretold_combining(node, node.spec, made, inputs[0])
    if isinstance(node.spec, (MapSpec, FilterSpec)):
        known = inputs[0]
        told = None if known is None else foretold_function(made, node.spec, known)
        return node if told is None else replace(node, implementation=told)
    if isinstance(node.spec, RollingSpec):
        known = inputs[0]
        told = None if known is None else foretold(node.spec, known)
        if told is None or made.kind != "kernel or rows":
            return node
        remarks = [one for one in made.remarks if one != FIRST_BATCH]
        return remarked(replace(node, implementation=told), *remarks)
    if isinstance(node.spec, WindowSpec) and isinstance(node.spec.key, FunctionKey):
        known = inputs[0]
        if known is not None and compiles:
            made = foretold_key(made, node.spec.key, known)
        node = replace(node, implementation=made)
    on_columns = made.kind == "kernel" or isinstance(node.spec, ON_COLUMNS)
    if None in inputs and on_columns:
        return remarked(node, OBJECTS)
    return node


def _foretold_combining(
    node: StreamNode,
    spec: LocalCombineSpec | CombineGroupsSpec,
    made: Implementation,
    known: pa.Schema | None,
) -> StreamNode:
    if known is None:
        return node
    if isinstance(spec, CombineGroupsSpec):
        told = foretold_groups(made, spec.groups, known)
    else:
        told = foretold_combining(made, spec.window, node.parallelism, known)
    return node if told is None else replace(node, implementation=told)


class _Columns:
    """The columns of the operators' main outputs, each found when it is first asked for."""

    def __init__(self, graph: StreamGraph) -> None:
        self._nodes = {node.id: node for node in graph.nodes}
        self._edges = {
            node.id: [edge for edge in graph.edges if edge.target == node.id]
            for node in graph.nodes
        }
        self._found: dict[int, pa.Schema | None] = {}

    def inputs(self, node: int) -> list[pa.Schema | None]:
        """Of each port that is read, in order."""
        ports = sorted({edge.port for edge in self._edges[node]})
        return [self._at(node, port) for port in ports]

    def _at(self, node: int, port: int) -> pa.Schema | None:
        edges = [edge for edge in self._edges[node] if edge.port == port]
        if any(edge.tag is not None for edge in edges):
            return None
        found = [self._output(edge.source) for edge in edges]
        first = found[0] if found else None
        same = all(one is not None and one.equals(first) for one in found)
        return first if same else None

    def _output(self, node: int) -> pa.Schema | None:
        if node not in self._found:
            self._found[node] = self._result(node)
        return self._found[node]

    def _result(self, node: int) -> pa.Schema | None:
        spec = self._nodes[node].spec
        if isinstance(spec, LocalCombineSpec | CombineGroupsSpec):
            return self._at(node, 0)
        try:
            known: pa.Schema | None = spec.result_schema(self._at(node, 0), self._at(node, 1))
        except (StromError, OSError):  # the job will meet it, and say so
            return None
        return known
