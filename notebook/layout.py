"""Places for the boxes and lines of a directed graph without cycles, from left to right.

The usual four steps (Sugiyama): boxes go to layers by their longest way from a source; lines that
pass layers get a point in each; the order within a layer follows the middle of the neighbours, in
sweeps of which the one with fewest crossings counts; heights follow the neighbours as closely as
that order and the gaps allow, which is an isotonic regression. Lines cross layers only at their
points, so that none runs through a box.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]

SWEEPS = 8
"""Up and down the layers, of ordering and of placing each. More changed nothing that one sees."""

STRAIGHT = 4.0
"""How much more than a box the point of a passing line pulls to where its neighbours are."""


@dataclass(frozen=True)
class Spacing:
    """In pixels. `width`: of every box; `across`: between layers; `down`: between boxes of one;
    `line`: between lines at a box, and the room of one that passes."""

    width: float
    across: float = 130.0
    down: float = 20.0
    line: float = 16.0
    margin: float = 8.0


@dataclass(frozen=True)
class Rectangle:
    """`x`, `y`: its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """`paths`: of each line, in the order they were given, from the right of its source to the left
    of its target. Between two layers a path has two points, which a curve may join."""

    boxes: dict[str, Rectangle]
    paths: list[list[Point]]
    width: float
    height: float


def lay_out(
    heights: Mapping[str, float], lines: Sequence[tuple[str, str]], spacing: Spacing
) -> Layout:
    """`heights`: the least that each box needs, by id; lines go from one id to another, several may
    join the same two. ValueError if they go round in a circle."""
    layer_of = _layers(list(heights), lines)
    graph = _Graph(heights, lines, layer_of, spacing)
    graph.order()
    graph.place()
    return graph.layout()


def _layers(ids: Sequence[str], lines: Sequence[tuple[str, str]]) -> dict[str, int]:
    """By the longest way from a source; a source stands right ahead of the first that reads it."""
    below: dict[str, list[str]] = {one: [] for one in ids}
    missing = dict.fromkeys(ids, 0)
    for source, target in lines:
        below[source].append(target)
        missing[target] += 1
    layer = dict.fromkeys(ids, 0)
    ready = [one for one in ids if missing[one] == 0]
    sources, done = list(ready), 0
    while ready:
        one = ready.pop()
        done += 1
        for target in below[one]:
            layer[target] = max(layer[target], layer[one] + 1)
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    if done != len(ids):
        raise ValueError(f"lines go round in a circle, among {len(ids) - done} of the boxes")
    for one in sources:
        if below[one]:
            layer[one] = min(layer[target] for target in below[one]) - 1
    return layer


@dataclass(eq=False)
class _Slot:
    """A box (`id`), or the point of a line that passes. `y`: of its middle."""

    layer: int
    height: float
    weight: float
    id: str | None = None
    before: list[_Slot] = field(default_factory=list)
    behind: list[_Slot] = field(default_factory=list)
    at: int = 0
    y: float = 0.0


class _Graph:
    def __init__(
        self,
        heights: Mapping[str, float],
        lines: Sequence[tuple[str, str]],
        layer_of: Mapping[str, int],
        spacing: Spacing,
    ) -> None:
        self.spacing = spacing
        depth = max(layer_of.values(), default=-1) + 1
        self.layers: list[list[_Slot]] = [[] for _ in range(depth)]
        into, out_of = dict.fromkeys(heights, 0), dict.fromkeys(heights, 0)
        for source, target in lines:
            out_of[source] += 1
            into[target] += 1
        self.boxes: dict[str, _Slot] = {}
        for one, height in heights.items():
            enough = max(height, spacing.line * (max(into[one], out_of[one]) + 1))
            self.boxes[one] = self._add(_Slot(layer_of[one], enough, 1.0, one))
        self.chains = [self._chain(source, target) for source, target in lines]
        for layer in self.layers:
            _number(layer)

    def _add(self, slot: _Slot) -> _Slot:
        self.layers[slot.layer].append(slot)
        return slot

    def _chain(self, source: str, target: str) -> list[_Slot]:
        """The slots that a line goes through, from box to box."""
        first, last = self.boxes[source], self.boxes[target]
        points = [
            self._add(_Slot(layer, self.spacing.line, STRAIGHT))
            for layer in range(first.layer + 1, last.layer)
        ]
        chain = [first, *points, last]
        for a, b in pairwise(chain):
            a.behind.append(b)
            b.before.append(a)
        return chain

    # --- order -------------------------------------------------------------------------------

    def order(self) -> None:
        best, least = [list(layer) for layer in self.layers], self._crossings()
        for sweep in range(SWEEPS):
            if least == 0:
                break
            forwards = sweep % 2 == 0
            for layer in self.layers if forwards else reversed(self.layers):
                layer.sort(key=lambda slot: _middle(slot, slot.before if forwards else slot.behind))
                _number(layer)
            crossings = self._crossings()
            if crossings < least:
                best, least = [list(layer) for layer in self.layers], crossings
        self.layers = best
        for layer in self.layers:
            _number(layer)

    def _crossings(self) -> int:
        found = 0
        for layer in self.layers:
            seen: list[int] = []
            for slot in layer:
                ends = sorted(one.at for one in slot.behind)
                found += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return found

    # --- places ------------------------------------------------------------------------------

    def place(self) -> None:
        for layer in self.layers:
            self._settle(layer, [0.0] * len(layer))
        for sweep in range(SWEEPS + 1):
            forwards = sweep % 2 == 0
            for layer in self.layers if forwards else reversed(self.layers):
                wanted = []
                for slot in layer:
                    near = slot.before if forwards else slot.behind
                    if sweep == SWEEPS:
                        near = slot.before + slot.behind
                    wanted.append(sum(one.y for one in near) / len(near) if near else slot.y)
                self._settle(layer, wanted)

    def _settle(self, layer: list[_Slot], wanted: list[float]) -> None:
        """Put the slots where they want to be, as near as their order and the gaps allow: the
        least sum of squares, by pooling neighbours that would come too close."""
        offsets, bottom = [], 0.0
        for slot in layer:
            offsets.append(bottom + slot.height / 2)
            bottom += slot.height + self.spacing.down
        pools: list[
            tuple[float, float, int]
        ] = []  # (sum of weights x places, of weights, how many)
        for slot, want, offset in zip(layer, wanted, offsets, strict=True):
            pool = ((want - offset) * slot.weight, slot.weight, 1)
            while pools and pools[-1][0] / pools[-1][1] > pool[0] / pool[1]:
                above = pools.pop()
                pool = (above[0] + pool[0], above[1] + pool[1], above[2] + pool[2])
            pools.append(pool)
        shifts = [pool[0] / pool[1] for pool in pools for _ in range(pool[2])]
        for slot, shift, offset in zip(layer, shifts, offsets, strict=True):
            slot.y = shift + offset

    # --- result ------------------------------------------------------------------------------

    def layout(self) -> Layout:
        spacing = self.spacing
        slots = [slot for layer in self.layers for slot in layer]
        top = min((slot.y - slot.height / 2 for slot in slots), default=0.0) - spacing.margin
        for slot in slots:
            slot.y -= top
        boxes = {
            one: Rectangle(self._left(slot), slot.y - slot.height / 2, spacing.width, slot.height)
            for one, slot in self.boxes.items()
        }
        starts = self._ends([chain[:2] for chain in self.chains])
        stops = self._ends([chain[:-3:-1] for chain in self.chains])
        paths = [
            self._path(chain, start, stop)
            for chain, start, stop in zip(self.chains, starts, stops, strict=True)
        ]
        bottom = max((slot.y + slot.height / 2 for slot in slots), default=0.0)
        right = max((self._left(slot) + spacing.width for slot in slots), default=0.0)
        return Layout(boxes, paths, right + spacing.margin, bottom + spacing.margin)

    def _left(self, slot: _Slot) -> float:
        spacing = self.spacing
        return spacing.margin + slot.layer * (spacing.width + spacing.across)

    def _ends(self, links: list[list[_Slot]]) -> list[float]:
        """Where each line meets its box, of (box, what is next to it): spread over the box's side
        in the order of what they lead to."""
        by_box: dict[_Slot, list[int]] = {}
        for at, (box, _) in enumerate(links):
            by_box.setdefault(box, []).append(at)
        found = [0.0] * len(links)
        for box, lines in by_box.items():
            lines.sort(key=lambda at: (links[at][1].y, at))
            for place, at in enumerate(lines, start=1):
                found[at] = box.y - box.height / 2 + box.height * place / (len(lines) + 1)
        return found

    def _path(self, chain: list[_Slot], start: float, stop: float) -> list[Point]:
        path = [(self._left(chain[0]) + self.spacing.width, start)]
        for slot in chain[1:-1]:
            left = self._left(slot)
            path += [(left, slot.y), (left + self.spacing.width, slot.y)]
        return [*path, (self._left(chain[-1]), stop)]


def _number(layer: list[_Slot]) -> None:
    for at, slot in enumerate(layer):
        slot.at = at


def _middle(slot: _Slot, near: list[_Slot]) -> float:
    """Of the neighbours' places; its own where it has none."""
    return sum(one.at for one in near) / len(near) if near else float(slot.at)
