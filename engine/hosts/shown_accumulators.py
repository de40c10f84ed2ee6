"""A job's accumulators for people who look at it from outside.

They travel sealed, as pickles that only the program opens. Those of strom's own classes over plain
values are opened here, without anything of the user being imported or run; of others the class is
told.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterable
from typing import Any, Final, TypedDict

from ...api.functions import accumulators as known
from ...api.functions.accumulators import Accumulator
from ...core.failure_text import cut
from ..exchange.pickling import Parcel

MOST_BYTES: Final = 100_000
"""Of one that is opened."""

MOST_TEXT: Final = 1_000


class AccumulatorView(TypedDict):
    """Merged over the subtasks. `vertex`: None over the whole job."""

    vertex: str | None
    name: str
    type: str
    value: str


class _Sealed(Exception):
    """It is of a class that is not opened here; its text is the name of that."""


class _Known(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        kind = getattr(known, name, None) if module == known.__name__ else None
        if isinstance(kind, type) and issubclass(kind, Accumulator):
            return kind
        raise _Sealed(name)


def shown_accumulators(parts: Iterable[tuple[str, str, Any]]) -> list[AccumulatorView]:
    """`parts`: (vertex, name, sealed) of all subtasks."""
    groups: dict[tuple[str | None, str], list[Any]] = {}
    for vertex, name, sealed in parts:
        for place in (vertex, None):
            groups.setdefault((place, name), []).append(sealed)
    return [_view(vertex, name, sealed) for (vertex, name), sealed in groups.items()]


def _view(vertex: str | None, name: str, sealed: list[Any]) -> AccumulatorView:
    kind, value = _merged(sealed)
    return {"vertex": vertex, "name": name, "type": kind, "value": value}


def _merged(sealed: list[Any]) -> tuple[str, str]:
    """(type, value)."""
    try:
        first, *others = [_opened(one) for one in sealed]
        merged = copy.deepcopy(first)
        for other in others:
            if type(other) is not type(merged):
                raise ValueError("operators have accumulators of several classes by this name")
            merged.merge(other)
        value = cut(str(merged.get_local_value()), MOST_TEXT)
    except _Sealed as kind:
        return str(kind), "(only the job's program can read it)"
    except Exception as error:
        return "", f"(cannot be shown: {cut(str(error), MOST_TEXT)})"
    return type(merged).__name__, value


def _opened(sealed: Any) -> Any:
    if not isinstance(sealed, Parcel):
        return sealed
    if len(sealed.data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return _Known(io.BytesIO(sealed.data)).load()
