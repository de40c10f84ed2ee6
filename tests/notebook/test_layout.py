"""Places of boxes and lines: none overlap, and all is where a reader expects it."""

from __future__ import annotations

import random
import time
from itertools import combinations, pairwise

import pytest
from strom.notebook.layout import Layout, Rectangle, Spacing, lay_out

SPACING = Spacing(width=100.0, across=50.0, down=10.0, line=8.0, margin=5.0)

Lines = list[tuple[str, str]]


def random_graph(seed: int, count: int, more: int) -> tuple[dict[str, float], Lines]:
    drawn = random.Random(seed)
    heights = {str(n): drawn.choice([20.0, 60.0, 200.0]) for n in range(count)}
    lines = [(str(drawn.randrange(n)), str(n)) for n in range(1, count) if drawn.random() < 0.9]
    for _ in range(more):
        a, b = sorted(drawn.sample(range(count), 2))
        lines.append((str(a), str(b)))
    return heights, lines


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return (
        a.x < b.x + b.width
        and b.x < a.x + a.width
        and a.y < b.y + b.height
        and b.y < a.y + a.height
    )


def check(heights: dict[str, float], lines: Lines, layout: Layout) -> None:
    assert list(layout.boxes) == list(heights)
    for one, box in layout.boxes.items():
        assert box.height >= heights[one]
        assert min(box.x, box.y) >= SPACING.margin - 1e-6
        assert box.x + box.width <= layout.width - SPACING.margin + 1e-6
        assert box.y + box.height <= layout.height - SPACING.margin + 1e-6
    for a, b in combinations(layout.boxes.values(), 2):
        assert not overlap(a, b)
    for (source, target), path in zip(lines, layout.paths, strict=True):
        start, stop = layout.boxes[source], layout.boxes[target]
        assert path[0][0] == pytest.approx(start.x + start.width)
        assert path[-1][0] == pytest.approx(stop.x)
        assert start.y < path[0][1] < start.y + start.height
        assert stop.y < path[-1][1] < stop.y + stop.height
        for at, ((x, y), (to_x, to_y)) in enumerate(pairwise(path)):
            if at % 2 == 0:  # between two layers, where there are no boxes
                assert to_x - x == pytest.approx(SPACING.across)
                continue
            assert y == to_y
            for box in layout.boxes.values():
                assert not overlap(box, Rectangle(x, y, to_x - x, 0.0))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overlaps(seed: int) -> None:
    heights, lines = random_graph(seed, 5 + 2 * seed, 3 * seed)
    layout = lay_out(heights, lines, SPACING)
    check(heights, lines, layout)
    assert layout == lay_out(heights, lines, SPACING), "the same each time"


def test_a_hundred_vertices_take_no_time() -> None:
    heights, lines = random_graph(1, 100, 200)
    began = time.process_time()
    layout = lay_out(heights, lines, SPACING)
    assert time.process_time() - began < 5.0  # found: 0.1
    check(heights, lines, layout)


def test_a_chain_is_a_straight_line() -> None:
    layout = lay_out({"a": 20, "b": 80, "c": 40}, [("a", "b"), ("b", "c")], SPACING)
    assert [box.x for box in layout.boxes.values()] == [5, 155, 305]
    assert {y for path in layout.paths for _, y in path} == {45.0}


def test_lines_that_need_not_cross_do_not() -> None:
    """A ladder, told with its rungs in the wrong order."""
    lines = [("a", "z"), ("b", "y"), ("c", "x")]
    layout = lay_out(dict.fromkeys("abcxyz", 20.0), lines, SPACING)
    for (a, b), (c, d) in combinations([(p[0][1], p[-1][1]) for p in layout.paths], 2):
        assert (a < c) == (b < d)


def test_lines_between_the_same_two_are_seen_as_several() -> None:
    layout = lay_out({"a": 20, "b": 20}, [("a", "b")] * 3, SPACING)
    assert len({path[0] for path in layout.paths}) == 3
    assert min(abs(a[-1][1] - b[-1][1]) for a, b in combinations(layout.paths, 2)) >= SPACING.line


def test_a_source_stands_by_who_reads_it() -> None:
    lines = [("a", "b"), ("b", "c"), ("late", "c")]
    boxes = lay_out(dict.fromkeys(["a", "b", "c", "late"], 20.0), lines, SPACING).boxes
    assert boxes["late"].x == boxes["b"].x


def test_nothing_at_all_and_circles() -> None:
    assert lay_out({}, [], SPACING).boxes == {}
    with pytest.raises(ValueError, match="circle, among 2 of the boxes"):
        lay_out({"a": 1, "b": 1}, [("a", "b"), ("b", "a")], SPACING)
