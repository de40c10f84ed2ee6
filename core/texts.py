"""Texts that any encoding of Unicode takes, and that a terminal shows as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def encodable(text: str) -> str:
    r"""The text, with what UTF-8 cannot say (half a pair of surrogates, as names of files that are
    no UTF-8 have) as its escape.

    >>> encodable("caf\udce9"), encodable("café")
    ('caf\\udce9', 'café')
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: Any) -> Any:
    """Plain data with all its texts so."""
    return _all(value, encodable)


def printable(text: str) -> str:
    r"""The text, with what is no printable character (line ends, controls, what turns the direction
    of text, parts of characters) as Python would write it: one line, in which nothing moves or
    colours what a terminal shows.

    >>> printable("caf\udce9"), printable("café"), printable("\x1b[31m\n")
    ('caf\\udce9', 'café', '\\x1b[31m\\n')
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    r"""The same of a text of several lines, which it keeps.

    >>> printable_lines("a\r\nb")
    'a\\r\nb'
    """
    return "\n".join(printable(line) for line in text.split("\n"))


def all_printable(value: Any) -> Any:
    """Plain data with all its texts `printable`."""
    return _all(value, printable)


def _all(value: Any, changed: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, dict):
        return {changed(k) if isinstance(k, str) else k: _all(v, changed) for k, v in value.items()}
    return [_all(one, changed) for one in value] if isinstance(value, list) else value
