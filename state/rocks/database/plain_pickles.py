"""Values that are the same to every program: their pickles name no class or function but of Python
and numpy, whose meaning no program changes, and of rows, which name their fields.

Almost all plain pickles lack the byte that each name comes with, which is a look of nanoseconds. It
is also a byte like any other in texts and numbers: pickles that have it are read, in C, and their
names compared.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from ....core.row import make_row
from ...stored_objects import NAMES
from .entry_bytes import entry_parts
from .layouts import VALUES
from .taken_over import OWN, PLAIN
from .task_database import TaskDatabase

_FIXED: Final = frozenset(
    {
        ("builtins", "complex"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy.core.numeric", "_frombuffer"),
        ("uuid", "UUID"),
        (make_row.__module__, make_row.__name__),
    }
)


def is_plain(data: bytes) -> bool:
    """Of a pickle that this process has made."""
    if NAMES not in data:
        return True
    try:
        _Names(io.BytesIO(data)).load()
    except Exception:
        return False
    return True


class WrittenValues:
    """Looks at what one state writes to RocksDB, and has its layout say when something is not
    plain: before it is written, so that no checkpoint has the one without the other."""

    def __init__(self, database: TaskDatabase, prefix: bytes) -> None:
        self._database = database
        self._prefix = prefix
        self._plain = database.layout(prefix).get(VALUES) == PLAIN

    def pickle(self, data: bytes) -> bytes:
        """A pickle that is going to be written, as it is."""
        if self._plain and NAMES in data and not is_plain(data):
            self._other()
        return data

    def entry(self, data: bytes) -> bytes:
        """Likewise one of `entry_bytes`."""
        if self._plain and NAMES in data and not all(is_plain(one) for one in entry_parts(data)):
            self._other()
        return data

    def _other(self) -> None:
        self._plain = False
        database, prefix = self._database, self._prefix
        database.relabel(prefix, {**database.layout(prefix), VALUES: OWN})


class _Names(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _FIXED:
            raise pickle.UnpicklingError(f"{module}.{name} may be another program's")
        return super().find_class(module, name)
