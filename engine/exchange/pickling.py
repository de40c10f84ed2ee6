"""Values without a schema on their way between processes, and the same refusals within one.

What the main program defines goes by value (cloudpickle): the receiver has another main program.
Everything that is refused is refused in one sentence, on every host: where values pass by
reference, a `ValueCheck` looks whether they could travel.
"""

from __future__ import annotations

import datetime
import decimal
import pickle
import sys
import uuid
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from ...core.errors import SerializationError, TransportError
from ...core.failure_text import described
from ...core.row import Row

ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes))

_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)
_OTHERS = (zoneinfo.ZoneInfo, decimal.Decimal, uuid.UUID, range)
_NUMPYS = (np.bool_, np.int32, np.int64, np.float32, np.float64)
KNOWN = frozenset((*_TIMES, *_OTHERS, *_NUMPYS, complex))
"""Types that every process has, and whose pickles it can read."""


@dataclass(frozen=True)
class Parcel:
    """A user's value within a message, closed until somebody who needs the value opens it: those
    who pass it on need neither its class nor its good behaviour."""

    data: bytes


class _Nowhere:
    """A file that forgets what is written."""

    def write(self, data: Any) -> None:
        """Nothing to do."""


class _Look(pickle.Pickler):
    """Pickles into nothing, and notes the types of what is no plain data, and types that are it."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5)
        self.kinds: set[type] = set()

    def reducer_override(self, value: Any) -> Any:
        """Called for all but Python's own numbers, texts and containers."""
        if type(value) in self.kinds:
            return NotImplemented
        if isinstance(value, Row) and _is_made(type(value)):
            return tuple, (tuple(value),)
        if not isinstance(value, np.dtype) and not _is_everywhere(value):
            self.kinds.add(value if isinstance(value, type) else type(value))
        return NotImplemented


def _is_everywhere(value: Any) -> bool:
    """Whether it is a class or a compiled function that every process has, such as pickles of
    numbers and times refer to."""
    if not isinstance(value, (type, BuiltinFunctionType)):
        return False
    module = (value.__module__ or "builtins").partition(".")[0]
    return module == "numpy" or module in sys.stdlib_module_names


def odd_kinds(values: Iterable[Any]) -> set[type]:
    """The types among the values, and in what they hold, that another process may lack or be unable
    to read. Raises what the pickler raises. It costs what pickling costs, some 0.1 µs for a tuple;
    rows, which pickle slowly, are taken for the tuples that they are.

    >>> odd_kinds([1, ("a", [2.5, None]), Row(n=1)]), odd_kinds([1, {"f": Parcel(b"")}])
    (set(), {<class 'strom.engine.exchange.pickling.Parcel'>})
    """
    kinds = set(map(type, values))
    if kinds <= ATOMS:
        return set()
    if all(map(_is_made, kinds)):
        values = list(map(tuple, values))
    look = _Look()
    look.dump(values)
    return look.kinds - KNOWN


def _is_made(kind: type) -> bool:
    """Whether it is one of the classes that `Row` makes: these need not be shipped."""
    return kind.__module__ == Row.__module__ and issubclass(kind, Row)


def is_plain(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, texts, times and the like, or rows, tuples, lists, dicts and
    sets of such: every process can read these."""
    try:
        return not odd_kinds(values)
    except Exception:
        return False


def parcel(value: Any, what: str, receiver: str) -> Any:
    """The value for a message: itself if it is plain, else its Parcel. SerializationError if it
    does not pickle; `what` and `receiver` name it there."""
    if is_plain(value if type(value) in (list, tuple) else (value,)):
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
    """Looks whether records that pass by reference could travel. What is of a type not seen before
    is also read back; that all of a type can be read or none is taken for granted."""

    def __init__(self) -> None:
        self._readable: set[type] = set()

    def refuse(self, values: list[Any]) -> SerializationError | None:
        """Why the receiver could not read the values. SerializationError if they cannot be sent."""
        try:
            kinds = odd_kinds(values)
        except Exception:
            pickle_values(values)
            return None
        if kinds <= self._readable:
            return None
        try:
            unpickle_values(pickle.dumps(values, protocol=5))
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
    from ...core import code_pickles

    try:
        return code_pickles.dumps(value)
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
