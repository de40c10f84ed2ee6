"""Methods of texts on columns that are exactly Python's.

Where Python goes by Unicode's tables (upper and lower case, white space), Arrow's may be others:
such methods take texts of ASCII alone, and a batch with any other is Beyond. Order, equality and
substrings are the same in UTF-8 as by code points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .kinds import Beyond, given
from .program import Operation

_SPACE = "".join(chr(code) for code in (*range(9, 14), *range(28, 32), 32))
"""What Python strips of ASCII; Arrow leaves the separators 28..31."""


def joined(count: int) -> Operation:
    """Several texts, one after the other."""

    def run(*parts: Any) -> pa.Array:
        given(*parts)
        return pc.binary_join_element_wise(*parts, "")

    return Operation(" + ".join(["{}"] * count), pa.string(), run)


def length() -> Operation:
    return Operation(
        "len({})", pa.int64(), _of(lambda column: pc.utf8_length(column).cast("int64"))
    )


def written() -> Operation:
    """`str(...)` of an integer."""
    return Operation("str({})", pa.string(), _of(lambda column: column.cast(pa.string())))


def holding(part: str) -> Operation:
    """`part in text`"""
    return Operation(f"{_shown(part)} in {{}}", pa.bool_(), _of(pc.match_substring, part))


def method(name: str, arguments: Sequence[Any]) -> Operation | None:
    """A method with constants as arguments; None: not this one, or not with these."""
    shown = _shown(", ".join(map(repr, arguments)))[1:-1] if arguments else ""
    text = f"{{}}.{name}({shown})"
    match name, list(arguments):
        case (("upper" | "lower"), []):
            return Operation(text, pa.string(), _ascii(_CASES[name]))
        case (("strip" | "lstrip" | "rstrip"), []):
            return Operation(text, pa.string(), _ascii(_TRIMS[name], _SPACE))
        case (("strip" | "lstrip" | "rstrip"), [str(characters)]):
            return Operation(text, pa.string(), _of(_TRIMS[name], characters))
        case "startswith", [str(prefix)]:
            return Operation(text, pa.bool_(), _of(pc.starts_with, prefix))
        case "endswith", [str(suffix)]:
            return Operation(text, pa.bool_(), _of(pc.ends_with, suffix))
        case "replace", [str(old), str(new)] if old:
            return Operation(text, pa.string(), _of(pc.replace_substring, old, new))
    return None


def cut(start: int | None, stop: int | None) -> Operation | None:
    """`text[start:stop]`, both counted from the front."""
    if (start or 0) < 0 or (stop or 0) < 0:
        return None
    shown = f"{{}}[{'' if start is None else start}:{'' if stop is None else stop}]"
    run = _of(pc.utf8_slice_codeunits, start or 0, stop)
    return Operation(shown, pa.string(), run)


def _shown(part: str) -> str:
    """As Python writes it, in a format."""
    return repr(part).replace("{", "{{").replace("}", "}}")


def _of(run: Callable[..., pa.Array], *arguments: Any) -> Callable[..., pa.Array]:
    def of(column: pa.Array) -> pa.Array:
        given(column)
        return run(column, *arguments)

    return of


def _ascii(run: Callable[..., pa.Array], *arguments: Any) -> Callable[..., pa.Array]:
    def of(column: pa.Array) -> pa.Array:
        given(column)
        if not pc.all(pc.string_is_ascii(column), min_count=0).as_py():
            raise Beyond
        return run(column, *arguments)

    return of


_CASES = {"upper": pc.utf8_upper, "lower": pc.utf8_lower}
"""Of ASCII. Arrow's own for ASCII read the wrong bytes where a column's first text does not begin
at its first byte, as after the cast of a slice."""

_TRIMS = {"strip": pc.utf8_trim, "lstrip": pc.utf8_ltrim, "rstrip": pc.utf8_rtrim}
