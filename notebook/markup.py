"""Text as HTML and SVG: whatever names hold, they are shown as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rich.cells import cell_len

from ..core.texts import printable

LINE = "rgba(128,128,128,0.4)"
"""Of rules and borders: seen on light and on dark. Text has the colour of the page."""

FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def cut(text: str, most: int) -> str:
    """At most so many characters; 0: all of them."""
    return text if most == 0 or len(text) <= most else text[: most - 1] + "…"


def fit(text: str, most: int) -> str:
    """Plain, and at most so many columns of a font with one width, of which some characters take
    two."""
    text = printable(text[: most + 1])
    if cell_len(text) <= most:
        return text
    width, shown = 0, ""
    for one in text:
        width += cell_len(one)
        if width >= most:
            break
        shown += one
    return f"{shown}…"


def safe(text: str, most: int = 0) -> str:
    """For between tags and within quotes, plain and cut."""
    return escape(cut(printable(text), most), quote=True)


def element(tag: str, inside: str = "", /, **attributes: object) -> str:
    """`inside` is markup, attributes are text; names of these have `-` for `_`."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{safe(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{said}>{inside}</{tag}>"


def message(text: str) -> str:
    lines = text.splitlines() or [""]
    inside = "<br/>".join(safe(line) for line in lines)
    return element("div", inside, style="font-size:13px;opacity:0.8")


Cell = tuple[str, bool]
"""Markup, and whether it is a number, which stands to the right."""


def table(
    header: Sequence[Cell], rows: Iterable[Sequence[Cell]], caption: str = "", below: str = ""
) -> str:
    """`caption` and `below` are markup."""
    head = "".join(_cell("th", one, bold=True) for one in header)
    body = "".join(
        element("tr", "".join(_cell("td", one) for one in row), style="background:none")
        for row in rows
    )
    whole = element("thead", element("tr", head)) + element("tbody", body)
    style = "border-collapse:collapse;margin:4px 0;font-size:13px;color:inherit"
    parts = [_line(caption, "font-weight:600"), element("table", whole, style=style)]
    return element(
        "div",
        "".join([*parts, _line(below, "opacity:0.75")]),
        style="overflow-x:auto;max-width:100%",
    )


def _cell(tag: str, cell: Cell, bold: bool = False) -> str:
    inside, number = cell
    style = f"text-align:{'right' if number else 'left'};padding:3px 10px;white-space:nowrap;"
    style += f"border:0;border-bottom:1px solid {LINE};color:inherit;background:none"
    return element(tag, inside, style=f"{style};font-weight:600" if bold else style)


def _line(inside: str, style: str) -> str:
    return element("div", inside, style=f"font-size:13px;margin:2px 0;{style}") if inside else ""
