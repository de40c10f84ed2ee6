"""PyFlink's public names beside ours: which are the same, which take other arguments, which are not
there; and what `docs/porting.md` says of them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

SAME, OTHERWISE, DIFFERENT, ABSENT = "same", "same call", "different", "not there"
"""OTHERWISE: called as in PyFlink, and does something else. Only people can tell that."""

_MEMBER = re.compile(r"    (\w+)(?:\((.*)\)|  <attribute>)")


@dataclass(frozen=True)
class Name:
    """A class (`member` is None) or a member of one. `parameters`: None of what is not called.
    `optional`: those of them that may be left out."""

    module: str
    owner: str
    member: str | None
    parameters: tuple[str, ...] | None
    optional: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.owner if self.member is None else f"{self.owner}.{self.member}"


def optional_parameters(text: str) -> dict[tuple[str, str], frozenset[str]]:
    """(module, `Class.method`) -> parameters, from lines `module Class.method: parameters`."""
    lines = [line.partition(": ") for line in text.splitlines()]
    return {(name.split()[0], name.split()[1]): frozenset(rest.split()) for name, _, rest in lines}


def pyflink_names(
    text: str, optional: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType({})
) -> Iterator[Name]:
    """From lines `[module]`, `Class(bases)` and, indented, `method(parameters)`; which of these
    may be left out, says `optional`."""
    module = owner = ""
    for line in filter(str.strip, text.splitlines()):
        if line.startswith("["):
            module = line.strip("[]")
        elif not line.startswith(" "):
            owner = line.partition("(")[0]
            yield Name(module, owner, None, None)
        else:
            match = _MEMBER.fullmatch(line)
            assert match is not None, line
            name, arguments = match.groups()
            parameters = None if arguments is None else tuple(re.findall(r"\w+", arguments))
            free = optional.get((module, f"{owner}.{name}"), frozenset())
            yield Name(module, owner, name, parameters, free)


def found(name: Name) -> str:
    """SAME: there, and called as in PyFlink, by position and by keyword, without what PyFlink lets
    one leave out."""
    path = name.module.replace("pyflink", "strom", 1)
    try:
        owner = getattr(importlib.import_module(path), name.owner)
    except (ImportError, AttributeError):
        return ABSENT
    if name.member is None:
        return SAME
    if name.member == "__init__":
        return SAME if _accepts(owner, name) else DIFFERENT
    try:
        member = getattr(owner, name.member)
    except AttributeError:
        return ABSENT
    if name.parameters is None:
        return SAME
    return SAME if callable(member) and _accepts(_unbound(owner, name), name) else DIFFERENT


def _unbound(owner: Any, name: Name) -> Any:
    """The method without its `self`."""
    assert name.member is not None
    raw = inspect.getattr_static(owner, name.member)
    member = getattr(owner, name.member)
    if inspect.isfunction(raw):
        return member.__get__(object())
    return member


def _accepts(function: Any, name: Name) -> bool:
    """Whether all parameters can be given by keyword, and in this order without; and those that
    PyFlink needs do."""
    wanted = name.parameters or ()
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if wanted == ("args", "kwargs") or wanted == ("row_kind", "args", "kwargs"):
        kinds = {one.kind for one in parameters}
        return {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    named = [one.name for one in parameters]
    several = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    places = [named.index(one) for one in wanted if one in named]
    if len(places) < len(wanted):
        return several and len(wanted) == 1 and wanted[0] in ("args", "streams")
    required = {
        one.name
        for one in parameters
        if one.default is inspect.Parameter.empty
        and one.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    in_order = several or places == sorted(places)
    leading = several or named[: len(wanted)] == list(wanted)
    return in_order and leading and required <= set(wanted) - name.optional


def documented(page: Path) -> dict[str, tuple[str, str]]:
    """`Class` or `Class.member` -> (status, reason), from the rows of the page's tables. A row of a
    class stands for its members that have no row of their own."""
    rows: dict[str, tuple[str, str]] = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if (
            line.startswith("| `")
            and len(cells) == 3
            and cells[1] in (SAME, OTHERWISE, DIFFERENT, ABSENT)
        ):
            for one in re.findall(r"`([\w.]+)`", cells[0]):
                assert one not in rows, f"{one} has two rows"
                rows[one] = (cells[1], cells[2])
    return rows
