"""Graphs for people and tools: a JSON-able description of any of the three, as text or Mermaid.

All three levels share one shape:

    {"level": "stream" | "job" | "execution", "name": str, "nodes": [
        {"id": str, "name": str, "kind": "source" | "sink" | "source+sink" | "operator",
         "parallelism": int, ..., "inputs": [{"from": str, "ship": str, "tag": str | None,
         "port": int}], "operators": [{...}]  (job level)}]}

Operators (nodes of the stream level, "operators" of the job level) have "implementation", None
where nothing was planned:

    {"kind": "kernel" | "batches" | "rows" | "kernel or rows" | "kernel or batches" |
     "batches or rows", "name": str, "why_not": str | None, "remarks": [str]}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .implementation import Implementation
from .model import (
    ChainedOperator,
    Custom,
    ExecutionGraph,
    JobEdge,
    JobGraph,
    JobVertex,
    KeyGroups,
    Partitioner,
    StreamEdge,
    StreamGraph,
    StreamNode,
)

Description = dict[str, Any]


def ship_name(partitioner: Partitioner) -> str:
    """`FORWARD`, `REBALANCE`, `HASH(origin, carrier)`, ..."""
    match partitioner:
        case KeyGroups(key):
            return f"HASH({key.describe()})"
        case Custom(_, key):
            return f"CUSTOM({key.describe()})"
        case _:
            return type(partitioner).__name__.upper()


def describe(graph: StreamGraph | JobGraph | ExecutionGraph) -> Description:
    """The graph as plain, JSON-able data."""
    match graph:
        case StreamGraph():
            nodes = _stream_nodes(graph)
            return {"level": "stream", "name": graph.name, "nodes": nodes}
        case JobGraph():
            return {"level": "job", "name": graph.name, "nodes": _job_nodes(graph)}
        case _:
            nodes = _execution_nodes(graph)
            return {"level": "execution", "name": graph.job.name, "nodes": nodes}


def _stream_nodes(graph: StreamGraph) -> list[Description]:
    inputs: dict[int, list[Description]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target].append(_input(str(edge.source + 1), edge))
    return [_stream_node(node, inputs[node.id]) for node in graph.nodes]


def _stream_node(node: StreamNode, inputs: list[Description]) -> Description:
    return {
        "id": str(node.id + 1),
        "operator_id": node.operator_id,
        "name": node.name,
        "kind": _kind(node.is_source, node.is_sink),
        "spec": type(node.spec).__name__,
        "description": node.description,
        "implementation": _implementation(node.implementation),
        "uid": node.uid,
        "parallelism": node.parallelism,
        "max_parallelism": node.max_parallelism,
        "slot_sharing_group": node.slot_sharing_group,
        "chaining": node.chaining,
        "inputs": inputs,
        "state_backend": node.state_backend,
    }


def _job_nodes(graph: JobGraph) -> list[Description]:
    number = {vertex.id: str(i + 1) for i, vertex in enumerate(graph.vertices)}
    inputs: dict[str, list[Description]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target].append(_input(number[edge.source], edge))
    return [_job_node(v, number[v.id], inputs[v.id]) for v in graph.vertices]


def _job_node(vertex: JobVertex, number: str, inputs: list[Description]) -> Description:
    deal = {"deal": list(vertex.deal)} if vertex.deal else {}
    return {
        "id": number,
        "vertex_id": vertex.id,
        "name": vertex.name,
        "kind": _kind(vertex.is_source, any(o.is_sink for o in vertex.operators)),
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "slot_sharing_group": vertex.slot_sharing_group,
        **deal,
        "inputs": inputs,
        "operators": [_operator(operator) for operator in vertex.operators],
    }


def _operator(operator: ChainedOperator) -> Description:
    return {
        "operator_id": operator.operator_id,
        "name": operator.name,
        "kind": _kind(operator.is_source, operator.is_sink),
        "spec": type(operator.spec).__name__,
        "description": operator.description,
        "implementation": _implementation(operator.implementation),
        "feeds": [e.target for e in operator.inner],
        "state_backend": operator.state_backend,
    }


def _implementation(made: Implementation | None) -> Description | None:
    if made is None:
        return None
    return {
        "kind": made.kind,
        "name": made.name,
        "why_not": made.why_not,
        "remarks": list(made.remarks),
    }


def _execution_nodes(graph: ExecutionGraph) -> list[Description]:
    vertices = {vertex.id: vertex for vertex in graph.job.vertices}
    edges = {edge.id: edge for edge in graph.job.edges}
    number = {vertex.id: i + 1 for i, vertex in enumerate(graph.job.vertices)}
    nodes = []
    for task in graph.tasks:
        vertex = vertices[task.vertex]
        inputs = [
            _input(f"{number[c.source.vertex]}.{c.source.subtask}", edges[c.edge])
            for c in graph.inputs[task]
        ]
        node = {
            "id": f"{number[task.vertex]}.{task.subtask}",
            "name": vertex.label(task.subtask),
            "kind": _kind(vertex.is_source, any(o.is_sink for o in vertex.operators)),
            "parallelism": 1,
            "vertex_id": vertex.id,
            "subtask": task.subtask,
            "inputs": inputs,
        }
        nodes.append(node)
    return nodes


def _input(source: str, edge: StreamEdge | JobEdge) -> Description:
    return {
        "from": source,
        "ship": ship_name(edge.partitioner),
        "tag": edge.tag,
        "port": edge.port,
    }


def _kind(is_source: bool, is_sink: bool) -> str:
    match is_source, is_sink:
        case True, True:
            return "source+sink"
        case True, False:
            return "source"
        case False, True:
            return "sink"
        case _:
            return "operator"


def to_text(description: Mapping[str, Any]) -> str:
    """An indented tree: every node with its inputs and, at the job level, its chained operators."""
    nodes = description["nodes"]
    lines = [f"{description['level']} graph '{description['name']}': {len(nodes)} nodes"]
    for node in nodes:
        facts = [] if node["kind"] == "operator" else [node["kind"]]
        facts.append(f"parallelism {node['parallelism']}")
        lines.append(f"{node['id']}  {node['name']}  [{', '.join(facts)}]")
        details = [[f"from {_edge_text(edge)}"] for edge in node["inputs"]]
        if node.get("deal"):
            details.append([_deal_text(node["deal"], node["max_parallelism"])])
        details += _operator_lines(node.get("operators", []))
        if node.get("description"):
            details.append([node["description"]])
        if node.get("implementation"):
            details.append(_made(node["implementation"]))
        if node.get("state_backend"):
            details.append([_kept(node)])
        for i, (detail, *below) in enumerate(details):
            last = i == len(details) - 1
            lines.append(f"   {'└─' if last else '├─'} {detail}")
            lines += [f"   {' ' if last else '│'}     {line}" for line in below]
    return "\n".join(lines)


def _deal_text(deal: Sequence[int], groups: int) -> str:
    """Of key groups that are dealt unevenly.

    >>> _deal_text([0, 5, 90], 128)
    'key groups, dealt by load: 0..4, 5..89, 90..127'
    """
    ranges = [f"{first}..{behind - 1}" for first, behind in pairwise([*deal, groups])]
    return f"key groups, dealt by load: {', '.join(ranges)}"


def _operator_lines(operators: list[Description]) -> list[list[str]]:
    """A line for each operator and those below it. Nothing for a chain of one operator of which
    there is nothing to say but the node's name."""
    if len(operators) == 1 and not operators[0]["description"]:
        made, kept = operators[0]["implementation"], _kept(operators[0])
        return ([_made(made)] if made else []) + ([[kept]] if kept else [])
    return [_operator_text(operator) for operator in operators]


def _operator_text(operator: Description) -> list[str]:
    text = f"runs {operator['name']}"
    if operator["description"]:
        text += f": {operator['description']}"
    kept = [_kept(operator)] if operator["state_backend"] else []
    if not operator["implementation"]:
        return [text, *kept]
    made, *below = _made(operator["implementation"])
    return [f"{text}  [{made}]", *below, *kept]


def _kept(operator: Mapping[str, Any]) -> str:
    """Where the operator keeps its state, if that is not where the job does."""
    backend = operator["state_backend"]
    return f"keyed state: {backend}" if backend else ""


def _made(made: Mapping[str, Any]) -> list[str]:
    """What runs, then why nothing faster does, then remarks."""
    why_not = [f"not faster: {made['why_not']}"] if made["why_not"] else []
    return [f"{made['kind']}: {made['name']}", *why_not, *made["remarks"]]


def _edge_text(edge: Mapping[str, Any]) -> str:
    tag = f", side output '{edge['tag']}'" if edge["tag"] is not None else ""
    port = f", input {edge['port']}" if edge["port"] else ""
    return f"{edge['from']} by {edge['ship']}{tag}{port}"


def to_mermaid(description: Mapping[str, Any]) -> str:
    """A Mermaid flowchart; sources are stadiums, sinks are cylinders."""
    lines = ["flowchart LR"]
    for node in description["nodes"]:
        left, right = {"source": ("([", "])"), "sink": ("[(", ")]")}.get(node["kind"], ("[", "]"))
        label = [f"{node['name']} x{node['parallelism']}", *_mermaid_lines(node)]
        shown = "<br/>".join(_escape(line) for line in label)
        lines.append(f'    {_mermaid_id(node["id"])}{left}"{shown}"{right}')
    for node in description["nodes"]:
        for edge in node["inputs"]:
            tag = f" '{edge['tag']}'" if edge["tag"] is not None else ""
            source, target = _mermaid_id(edge["from"]), _mermaid_id(node["id"])
            lines.append(f'    {source} -->|"{_escape(edge["ship"] + tag)}"| {target}')
    return "\n".join(lines)


def _mermaid_lines(node: Mapping[str, Any]) -> list[str]:
    """What the node's operators run as, one line each, with their names if there are several."""
    operators = node.get("operators", [node])
    lines = []
    for operator in operators:
        if operator.get("implementation"):
            text = "; ".join(_made(operator["implementation"]))
            lines.append(f"{operator['name']} [{text}]" if len(operators) > 1 else text)
    return lines


def _mermaid_id(node_id: str) -> str:
    return "n" + node_id.replace(".", "_")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
