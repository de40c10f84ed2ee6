"""Graphs as HTML: well formed, with all that `explain` tells, and nothing of names as markup."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from strom import (
    DiscardSink,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
    Types,
)
from strom.core.texts import printable
from strom.notebook.drawing import CARD, NAME, SMALL, WIDE
from strom.notebook.markup import message, safe

SVG = "{http://www.w3.org/2000/svg}"

HOSTILE = "</text><script>alert(1)</script>\"'&]]>\x1b[31m\x00\n\u202e\ud800" + "w" * 500

Env = StreamExecutionEnvironment


class Sides(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


@pytest.fixture
def env() -> Env:
    return StreamExecutionEnvironment.get_execution_environment()


def drawn(html: str) -> ElementTree.Element:
    """The SVG in it, of which all HTML is well-formed XML."""
    return next(iter(ElementTree.fromstring(html).iter(f"{SVG}svg")))


def cards(html: str) -> list[list[str]]:
    """The texts of each vertex."""
    groups = [one for one in drawn(html).iter(f"{SVG}g") if one.get("class") == "vertex"]
    return [[str(text.text) for text in one.iter(f"{SVG}text")] for one in groups]


def edges(html: str) -> list[str]:
    groups = [one for one in drawn(html).iter(f"{SVG}g") if one.get("class") == "edge"]
    return [str(next(one.iter(f"{SVG}text")).text) for one in groups]


def test_what_a_graph_tells(env: Env) -> None:
    env.set_parallelism(2)
    numbers = env.from_collection([{"k": 1, "v": 2}]).map(lambda one: one).name("twice")
    numbers.set_description("says what it does")
    sums = numbers.key_by("k").sum("v")
    sums.set_state_backend("rocksdb")
    sums.sink_to(DiscardSink()).name("gone").set_parallelism(1)
    html = env._repr_html_()
    assert cards(html) == [
        ["1 · source · parallelism 1", "Source: Collection", "batches: source"],
        [
            "2 · parallelism 2",
            "twice",
            "batches or rows: a Python function",
            "says what it does",
        ],
        ["3 · parallelism 2", "Sum(v)", *cards(html)[2][2:-1], "keyed state: rocksdb"],
        ["4 · sink · parallelism 1", "gone", "batches: sink"],
    ]
    assert edges(html) == ["REBALANCE", "HASH(k)", "REBALANCE"]
    assert "job graph &#x27;strom job&#x27;: 4 vertices" in html
    assert "the first batch decides" in html, "who points at it is told why"
    assert cards(env.get_job_graph()._repr_html_())[1][1] == "twice"
    operators = cards(env.get_stream_graph("other")._repr_html_())
    assert [lines[1] for lines in operators] == ["Source: Collection", "twice", "Sum(v)", "gone"]


def test_a_stream_is_drawn_up_to_where_it_is(env: Env) -> None:
    source = env.from_collection([1])
    big = source.filter(lambda n: n > 1).name("big")
    big.print()
    small = source.filter(lambda n: n < 1).name("small")
    assert [lines[1] for lines in cards(small._repr_html_())] == ["Source: Collection"]
    assert "small" in cards(small._repr_html_())[0]
    assert "big" not in cards(small._repr_html_())[0]
    assert "; then HASH(" in small.key_by(lambda n: n)._repr_html_()
    assert "; then side output" not in small._repr_html_()
    both = big.union(small.rebalance())
    assert {"big", "small"} <= set(cards(both._repr_html_())[0])
    assert "; then REBALANCE of small" in both._repr_html_()
    sink = small.sink_to(DiscardSink()).name("the end")
    assert "the end" in cards(sink._repr_html_())[0]


def test_a_stream_that_is_kept_is_a_source(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    with env:
        kept = env.from_collection([1]).map(abs).name("dear").cache()
        assert "dear" in cards(kept._repr_html_())[0]
        kept.sink_to(DiscardSink())
        env.execute()
        (card,) = cards(kept._repr_html_())
        assert "dear" not in card
        kept.show()
        assert "│     1 │" in capsys.readouterr().out


def test_side_outputs_are_told_apart(env: Env) -> None:
    late = OutputTag("late", Types.INT())
    main = env.from_collection([1]).process(Sides()).set_parallelism(1)
    late_ones = main.get_side_output(late)
    assert "then side output &#x27;late&#x27; of" in late_ones._repr_html_()
    main.union(late_ones).map(lambda n: n).set_parallelism(2).sink_to(DiscardSink())
    html = env._repr_html_()
    assert edges(html) == ["REBALANCE", "late: REBALANCE", "REBALANCE"]
    dashed = [one for one in drawn(html).iter(f"{SVG}path") if one.get("stroke-dasharray")]
    assert len(dashed) == 1


def test_names_are_text(env: Env) -> None:
    env.from_collection([1]).map(abs).name(HOSTILE).set_description(HOSTILE).print()
    env.from_collection([{HOSTILE: 1}]).key_by(HOSTILE).sum(HOSTILE).print()
    html = env._repr_html_()
    html.encode()  # no halves of characters
    assert printable(html.replace("\n", "")) == html.replace("\n", "")
    tags = {one.tag.removeprefix(SVG) for one in ElementTree.fromstring(html).iter()}
    assert tags == {"div", "svg", "title", "g", "rect", "circle", "text", "path"}
    assert "script" not in {match.lower() for match in re.findall(r"<\s*(\w+)", html)}
    shown = [line for card in cards(html) for line in card if line.startswith("</text>")]
    assert shown
    assert not re.search(r"(?:href|src|on\w+)\s*=|url\(|@import", html.replace(HOSTILE, ""))


def test_nothing_is_wider_than_its_card(env: Env) -> None:
    env.from_collection([1]).map(abs).name("m" * 300).set_description("d水" * 300).print()
    texts = [text for card in cards(env._repr_html_()) for text in card]
    assert sum(text.endswith("…") for text in texts) == 2
    for text in texts:
        size = NAME if text.startswith("m") else SMALL
        assert cell_len(text) * size * WIDE <= CARD - 20


def test_a_long_chain_is_cut(env: Env) -> None:
    stream = env.from_collection([1])
    for n in range(30):
        stream = stream.map(abs).name(f"step {n}")
    (card,) = cards(stream._repr_html_())
    assert card[-1] == "and 21 more operators"
    assert "step 29" in stream._repr_html_(), "told to who points at it"


def test_a_hundred_vertices(env: Env) -> None:
    env.set_parallelism(2)
    streams = [env.from_collection([n]).set_parallelism(1) for n in range(10)]
    for layer in range(9):
        streams = [
            one.union(other).map(abs).name(f"{layer} {n}").disable_chaining()
            for n, (one, other) in enumerate(zip(streams, streams[3:] + streams[:3], strict=True))
        ]
    streams[0].union(*streams[1:]).print().set_parallelism(1)
    svg = drawn(env._repr_html_())
    boxes = [
        tuple(float(one.get(side, "")) for side in ("x", "y", "width", "height"))
        for one in svg.iter(f"{SVG}rect")
    ]
    assert len(boxes) == 101
    for (x, y, width, height), (x2, y2, width2, height2) in combinations(boxes, 2):
        assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    assert max(x + width for x, _, width, _ in boxes) <= float(svg.get("width", ""))


def test_what_cannot_be_drawn_says_why(env: Env) -> None:
    assert "has no operators" in env._repr_html_()
    one = env.from_collection([1]).uid("same")
    one.map(abs).uid("same").sink_to(DiscardSink())
    html = env._repr_html_()
    assert "uid" in html
    assert "<svg" not in html
    assert "&#x27;same&#x27;" in html
    assert ElementTree.fromstring(message("a\n<b>")).find("br") is not None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("<&\"'>", "&lt;&amp;&quot;&#x27;&gt;"),
        ("a\nb\x00", "a\\nb\\x00"),
        ("\u202eabc\ud800", "\\u202eabc\\ud800"),
        ("Größe 水", "Größe 水"),
    ],
)
def test_safe(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_cut_before_it_is_escaped() -> None:
    assert safe("&&&&&", 3) == "&amp;&amp;…"
