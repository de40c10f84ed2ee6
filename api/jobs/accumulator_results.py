"""What the accumulators of a job's subtasks come to; merged where the program asks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from ...core.answered import AnsweredDict
from ...core.errors import StromError, TypeMismatchError
from ...core.failure_text import with_place

Part = tuple[str, str, Any]
"""(name, operator, accumulator) of one subtask."""


class AccumulatorResults:
    """By name. A result is worked out when it is asked for, so that one that cannot be had keeps
    nobody from the others."""

    def __init__(
        self, parts: Iterable[Part] = (), opened: Callable[[Any], Any] = lambda sealed: sealed
    ) -> None:
        """`opened` makes the accumulator of what a part holds; called for what is asked for."""
        self._parts: dict[str, list[tuple[str, Any]]] = {}
        for name, operator, sealed in parts:
            self._parts.setdefault(name, []).append((operator, sealed))
        self._opened = opened

    def __eq__(self, other: object) -> bool:
        """Whether they are made of the same parts."""
        return isinstance(other, AccumulatorResults) and self._parts == other._parts

    __hash__ = None  # type: ignore[assignment]

    def result(self, name: str) -> Any:
        """None if there is none of this name, TypeMismatchError if two operators have different
        ones under it, StromError with what merging raised."""
        parts = self._parts.get(name)
        if parts is None:
            return None
        try:
            (first_operator, sealed), *rest = parts
            merged = copy.deepcopy(self._opened(sealed))
            for operator, more in rest:
                other = self._opened(more)
                if _kind(other) != _kind(merged):
                    raise TypeMismatchError(
                        f"accumulator '{name}' is a {type(merged).__name__} in operator "
                        f"{first_operator} and a {type(other).__name__} in operator {operator}: "
                        "give them different names"
                    )
                merged.merge(other)
            return merged.get_local_value()
        except StromError:
            raise
        except Exception as error:
            raise StromError(
                f"the subtasks' accumulators '{name}' cannot be merged: {with_place(error)}"
            ) from error

    def results(self) -> AnsweredDict:
        """All of them."""
        return AnsweredDict({name: self.result(name) for name in self._parts})


def _kind(accumulator: Any) -> tuple[str, str]:
    """By name: a class that a program defines travels by value, and may be another in each
    subtask."""
    kind = type(accumulator)
    return kind.__module__, kind.__qualname__
