"""Which fields an object in state has, by its class; and how a class is refused whose fields have
changed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, NoReturn, cast

from ..core.errors import StateError
from ..core.row import Row

Fields = dict[str, str]
"""The type of each field as text, by its name."""


def fields_of(kind: type) -> Fields | None:
    """Of a dataclass or named tuple that has no hooks of its own; None of any other class."""
    return _fields_of(cast(Hashable, kind))


@lru_cache(maxsize=1024)
def _fields_of(kind: Any) -> Fields | None:
    if issubclass(kind, tuple):
        names = getattr(kind, "_fields", None)
        if names is None or issubclass(kind, Row) or _own_hook(kind):
            return None
        types = _annotations(kind)
        return {name: _type_text(types.get(name, "Any")) for name in names}
    if not dataclasses.is_dataclass(kind) or _own_hook(kind):
        return None
    return {field.name: _type_text(field.type) for field in dataclasses.fields(kind)}


def _annotations(kind: Any) -> dict[str, Any]:
    """Since 3.14 they are looked up when asked for, and need not all be there."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return dict(get_annotations(kind, format=Format.FORWARDREF))
    return getattr(kind, "__annotations__", {})


def _own_hook(kind: Any) -> bool:
    """Whether a class says itself how it is pickled."""
    named = issubclass(kind, tuple)
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__"):
        hook = getattr(kind, name, None)
        if hook is None or hook is getattr(object, name, None):
            continue
        made = getattr(hook, "__module__", None) in ("dataclasses", "collections")
        made = made or getattr(hook, "__name__", "").startswith("_dataclass_")
        if not (made or (named and name == "__getnewargs__")):
            return True
    return hasattr(kind, "__getnewargs_ex__")


def _type_text(kind: Any) -> str:
    kind = getattr(kind, "__forward_arg__", kind)
    if isinstance(kind, str):
        return kind
    return kind.__name__ if type(kind) is type else str(kind)


def fields_text(name: str, fields: Fields) -> str:
    """`Account[owner: str, balance: int]`."""
    return f"{name}[" + ", ".join(f"{n}: {t}" for n, t in fields.items()) + "]"


def refuse(what: str, kind: type, stored: Fields, why: str) -> NoReturn:
    """StateError: `what` was stored of a class with these fields."""
    raise StateError(
        f"{what} was stored as {fields_text(kind.__name__, stored)} and is "
        f"{fields_text(kind.__name__, fields_of(kind) or {})} now: {why}; say so on its descriptor "
        "with enable_migration(rename=, defaults=, drop=), give the class its fields back, or the "
        "state another name"
    )
