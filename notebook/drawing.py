"""A stream or job graph as one SVG: a card for each vertex, with its operators and what each runs
as; lines with how records are sent along them.

No colour but of dots is its own: text and lines have the page's, so that it is seen on light and on
dark. What does not fit is cut, and told whole when the pointer rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ..engine.graph.explain import describe
from ..engine.graph.model import JobGraph, StreamGraph
from .layout import Layout, Point, Rectangle, Spacing, lay_out
from .markup import FONT, element, fit, safe

CARD = 284.0
SPACING = Spacing(width=CARD, across=136.0)

ROW, DETAIL, PAD = 18.0, 15.0, 9.0
"""Heights in px: of an operator's name, of any other line, of what is around all."""

NAME, SMALL = 12.0, 10.5
"""Sizes of type."""

WIDE = 0.61
"""Of a character, by its size: what no font of `FONT` passes."""

MOST = 10
"""Operators that a card shows."""

DOTS = {
    "kernel": "#2f8f4e",
    "batches": "#2f7fc4",
    "rows": "#c9711b",
    "kernel or rows": "#8d62c9",
    "kernel or batches": "#8d62c9",
    "batches or rows": "#8d62c9",
}
"""By what an operator runs as, which is written beside it, too."""

Line = tuple[str, float, float, str]
"""Text, size, opacity, colour of the dot before it or nothing."""


def draw(graph: StreamGraph | JobGraph, note: str = "") -> str:
    """HTML: the graph's name, and the SVG in a box that scrolls."""
    described = describe(graph)
    nodes = described["nodes"]
    kind = "vertices" if described["level"] == "job" else "operators"
    if len(nodes) == 1:
        kind = {"vertices": "vertex", "operators": "operator"}[kind]
    caption = f"{described['level']} graph '{described['name']}': {len(nodes)} {kind}"
    head = element("div", safe(caption + (f"; {note}" if note else "")), style="font-size:13px")
    return element("div", head + svg(nodes, caption), style="overflow-x:auto;max-width:100%")


def svg(nodes: list[Mapping[str, Any]], caption: str) -> str:
    """Of the nodes of a description (`engine.graph.explain.describe`)."""
    cards = {node["id"]: _lines(node) for node in nodes}
    edges = [(edge, node["id"]) for node in nodes for edge in node["inputs"]]
    heights = {one: 2 * PAD + sum(_height(line) for line in lines) for one, lines in cards.items()}
    layout = lay_out(heights, [(edge["from"], target) for edge, target in edges], SPACING)
    inside = [element("title", safe(caption))]
    inside += [_edge(path, edge) for path, (edge, _) in zip(layout.paths, edges, strict=True)]
    inside += [_card(node, cards[node["id"]], layout.boxes[node["id"]]) for node in nodes]
    return _whole(layout, "".join(inside), caption)


def _whole(layout: Layout, inside: str, caption: str) -> str:
    width, height = round(layout.width), round(layout.height)
    return element(
        "svg",
        inside,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=caption,
        font_family=FONT,
        fill="currentColor",
        style="max-width:none;display:block;margin:6px 0",
    )


# --- cards -----------------------------------------------------------------------------------


def _lines(node: Mapping[str, Any]) -> list[Line]:
    facts = [node["id"], *([] if node["kind"] == "operator" else [node["kind"]])]
    head = " · ".join([*facts, f"parallelism {node['parallelism']}"])
    lines: list[Line] = [(head, SMALL, 0.7, "")]
    operators = node.get("operators", [node])
    for operator in operators[:MOST]:
        made = operator["implementation"]
        dot = DOTS[made["kind"]] if made else "none"
        lines.append((operator["name"], NAME, 1.0, dot))
        lines += [(text, SMALL, 0.75, "") for text in _about(operator)]
    if len(operators) > MOST:
        lines.append((f"and {len(operators) - MOST} more operators", SMALL, 0.75, ""))
    return lines


def _about(operator: Mapping[str, Any]) -> list[str]:
    made, backend = operator["implementation"], operator["state_backend"]
    said = [f"{made['kind']}: {made['name']}"] if made else []
    said += [operator["description"]] if operator["description"] else []
    return said + ([f"keyed state: {backend}"] if backend else [])


def _told(node: Mapping[str, Any]) -> str:
    """All that is known of a vertex, for who rests the pointer on it."""
    told = [f"{node['name']}, parallelism {node['parallelism']} of {node['max_parallelism']}"]
    for operator in node.get("operators", [node]):
        told.append(" ".join([operator["name"], *(f"[{text}]" for text in _about(operator))]))
        made = operator["implementation"]
        if made:
            why_not = [f"not faster: {made['why_not']}"] if made["why_not"] else []
            told += [f"    {text}" for text in (*why_not, *made["remarks"])]
    return "\n".join(told)


def _card(node: Mapping[str, Any], lines: list[Line], box: Rectangle) -> str:
    # Line by line, as a line end is no printable character.
    title = "\n".join(safe(line) for line in _told(node).split("\n"))
    parts = [element("title", title)]
    border = {"fill_opacity": 0.05, "stroke": "currentColor", "stroke_opacity": 0.45}
    parts.append(element("rect", **_sides(box), rx=6, **border))
    y = box.y + PAD
    for line in lines:
        text, size, opacity, dot = line
        y += _height(line)
        indent = 0.0 if line is lines[0] else 14.0
        if dot:
            at = {"cx": f"{box.x + 15:.1f}", "cy": f"{y - 9:.1f}", "r": 4}
            parts.append(element("circle", **at, fill=dot, stroke="currentColor"))
        most = int((box.width - 24 - indent) / (size * WIDE))
        place = {"x": f"{box.x + 10 + indent:.1f}", "y": f"{y - 5:.1f}", "font_size": size}
        weight = "600" if size == NAME else None
        shown = safe(fit(text, most))
        parts.append(element("text", shown, **place, font_weight=weight, fill_opacity=opacity))
    return element("g", "".join(parts), class_="vertex")


def _height(line: Line) -> float:
    return ROW if line[1] == NAME else DETAIL


def _sides(box: Rectangle) -> dict[str, object]:
    return {
        "x": f"{box.x:.1f}",
        "y": f"{box.y:.1f}",
        "width": f"{box.width:.1f}",
        "height": f"{box.height:.1f}",
    }


# --- lines -----------------------------------------------------------------------------------


def _edge(path: list[Point], edge: Mapping[str, Any]) -> str:
    (x, y), ship = path[-1], edge["ship"]
    told = ship
    if edge["tag"] is not None:
        told += f", side output '{edge['tag']}'"
    if edge["port"]:
        told += f", input {edge['port']}"
    tip = f"M{x:.1f},{y:.1f}l-8,-3.5v7z"
    most = int((SPACING.across - 22) / (SMALL * WIDE))
    shown = ship if edge["tag"] is None else f"{edge['tag']}: {ship}"
    label = {"x": f"{x - 12:.1f}", "y": f"{y - 4:.1f}", "font_size": SMALL, "text_anchor": "end"}
    dashes = None if edge["tag"] is None else "5 3"
    stroke = {"stroke": "currentColor", "stroke_opacity": 0.55, "stroke_width": 1.3}
    parts = [
        element("title", safe(told)),
        element("path", d=_curve(path), fill="none", stroke_dasharray=dashes, **stroke),
        element("path", d=tip, fill_opacity=0.7),
        element("text", safe(fit(shown, most)), **label, fill_opacity=0.8),
    ]
    return element("g", "".join(parts), class_="edge")


def _curve(path: list[Point]) -> str:
    """Between two layers a curve that leaves level and arrives early, so that what is written
    there stands above a straight line; over a layer straight on."""
    drawn = "M{:.1f},{:.1f}".format(*path[0])
    for at, ((x, y), (to_x, to_y)) in enumerate(pairwise(path)):
        if at % 2 == 0:
            half = (to_x - x) / 2
            drawn += f"C{x + half / 2:.1f},{y:.1f} {x + half / 2:.1f},{to_y:.1f}"
            drawn += f" {x + half:.1f},{to_y:.1f}"
        drawn += f"L{to_x:.1f},{to_y:.1f}"
    return drawn
