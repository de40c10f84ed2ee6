"""One value to bytes and back, for state whose values have no Arrow type."""

from __future__ import annotations

import pickle
from typing import Any, Final

from ..core.errors import StateError
from .object_reader import ObjectReader
from .stored_objects import pickled, pickled_by_value

_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})
"""Types whose pickles name nothing."""


def dumps(value: Any, what: str) -> bytes:
    """Pickle `value`. `what` names it in the error.

    Classes of the main program are pickled by value (cloudpickle), because the process that
    restores them may have another main program.
    """
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    try:
        data = pickled(value)
        if b"__main__" not in data:
            return data
    except Exception:
        pass
    try:
        return pickled_by_value(value)
    except Exception as error:
        raise StateError(
            f"{what}: a {type(value).__module__}.{type(value).__qualname__} cannot be pickled "
            f"({error}); keep plain data in state"
        ) from error


def loads(data: bytes, what: str, reader: ObjectReader | None = None) -> Any:
    """The value of `dumps`, in the classes as they are now. `what` names it in the error; `reader`:
    what is known of the state, made once for many values."""
    try:
        return (ObjectReader(what) if reader is None else reader).loads(data)
    except StateError:
        raise
    except Exception as error:
        raise StateError(
            f"{what}: the stored value cannot be read back ({type(error).__name__}: {error}); "
            "its class must be importable under the name it had when the snapshot was taken"
        ) from error
