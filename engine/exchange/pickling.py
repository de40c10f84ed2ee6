"""Values without a schema on their way between processes, and the same refusals within one.

What the main program defines goes by value (cloudpickle): the receiver has another main program.
Everything that is refused is refused in one sentence, on every host: where values pass by
reference, `check_values` looks whether they could travel.
"""

from __future__ import annotations

import datetime
import decimal
import pickle
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ...core.errors import SerializationError, TransportError
from ...core.failure_text import described
from ...core.row import Row

_PYTHONS = (type(None), bool, int, float, complex, str, bytes, range, decimal.Decimal, uuid.UUID)
_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
_NUMPYS = (np.bool_, np.int32, np.int64, np.float32, np.float64)
ATOMS = frozenset((*_PYTHONS, *_TIMES, *_NUMPYS))
"""Types whose values always travel."""

DEEPEST = 8
"""Containers nested deeper than this are pickled to see whether they travel."""


@dataclass(frozen=True)
class Parcel:
    """A user's value within a message, closed until somebody who needs the value opens it: those
    who pass it on need neither its class nor its good behaviour."""

    data: bytes


def is_plain(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, texts, times and the like, or rows, tuples, lists, dicts and
    sets of such. Costs some 20 ns per value: these need not be pickled to know that they travel.

    >>> is_plain([1, ("a", [2.5, None]), Row(n=1)]), is_plain([1, print])
    (True, False)
    """
    level = values
    for _ in range(DEEPEST):
        kinds = set(map(type, level)) - ATOMS
        if not kinds:
            return True
        if not all(map(_is_container, kinds)):
            return False
        level = list(chain.from_iterable(_members(v) for v in level if type(v) in kinds))
    return False


def _is_container(kind: type) -> bool:
    return kind in (tuple, list, dict, set, frozenset) or (
        issubclass(kind, Row) and kind.__module__ == Row.__module__
    )


def _members(value: Any) -> Iterable[Any]:
    return chain(value, value.values()) if type(value) is dict else value


def parcel(value: Any, what: str, receiver: str) -> Any:
    """The value for a message: itself if it is plain, else its Parcel. SerializationError if it
    does not pickle; `what` and `receiver` name it there."""
    if is_plain((value,)):
        return value
    return Parcel(_pickle(value, what, receiver))


def opened(value: Any, what: str) -> Any:
    """What was given to `parcel`. SerializationError if it cannot be read here."""
    return _unpickle(value.data, what, "here") if isinstance(value, Parcel) else value


def pickle_values(values: list[Any]) -> bytes:
    """Records for another task. SerializationError names the type of the one that cannot travel."""
    return _pickle(values, "record", "another task")


def unpickle_values(data: Any) -> list[Any]:
    """Only for bytes from an authenticated peer."""
    values = _unpickle(data, "records", "where the receiving task runs")
    if not isinstance(values, list):
        raise TransportError(f"an object frame holds a {type(values).__name__}, not a list")
    return values


class ValueCheck:
    """Looks whether records that pass by reference could travel. Of each type, the first batch is
    also read back; that all of a type can be read or none is taken for granted."""

    def __init__(self) -> None:
        self._readable: set[type] = set()

    def refuse(self, values: list[Any]) -> SerializationError | None:
        """Why the receiver could not read the values. SerializationError if they cannot be sent."""
        if is_plain(values):
            return None
        try:
            data = pickle.dumps(values, protocol=5)
        except Exception:
            data = pickle_values(values)
        kinds = set(map(type, values))
        if kinds <= self._readable:
            return None
        try:
            unpickle_values(data)
        except SerializationError as error:
            return error
        self._readable |= kinds
        return None


def _pickle(value: Any, what: str, receiver: str) -> bytes:
    try:
        data = pickle.dumps(value, protocol=5)
        if b"__main__" not in data:
            return data
    except Exception:
        pass  # cloudpickle can do more, and says what it cannot
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value, protocol=5))
    except Exception as error:
        culprit = _first_unpicklable(value)
        raise SerializationError(
            f"a {what} of type {type(culprit).__module__}.{type(culprit).__qualname__} cannot be "
            f"sent to {receiver} ({described(error)}); make it picklable or map it to plain data "
            "before"
        ) from error


def _first_unpicklable(value: Any) -> Any:
    """The item to blame of a list or tuple, else the value itself."""
    import cloudpickle

    for item in value if type(value) in (list, tuple) else ():
        try:
            cloudpickle.dumps(item, protocol=5)
        except Exception:
            return item
    return value


def _unpickle(data: Any, what: str, where: str) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise SerializationError(
            f"{what} cannot be read ({described(error)}); their classes must be importable {where} "
            "and give pickle what is enough to make them again"
        ) from error
