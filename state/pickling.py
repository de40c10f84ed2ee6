"""One value to bytes and back, for state whose values have no Arrow type."""

from __future__ import annotations

import pickle
from typing import Any

from ..core.errors import StateError


def dumps(value: Any, what: str) -> bytes:
    """Pickle `value`. `what` names it in the error.

    Classes of the main program are pickled by value (cloudpickle), because the process that
    restores them may have another main program.
    """
    try:
        data = pickle.dumps(value, protocol=5)
        if b"__main__" not in data:
            return data
    except Exception:
        pass
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value, protocol=5))
    except Exception as error:
        raise StateError(
            f"{what}: a {type(value).__module__}.{type(value).__qualname__} cannot be pickled "
            f"({error}); keep plain data in state"
        ) from error


def loads(data: bytes, what: str) -> Any:
    """The value of `dumps`. `what` names it in the error."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise StateError(
            f"{what}: the stored value cannot be read back ({type(error).__name__}: {error}); "
            "its class must be importable under the name it had when the snapshot was taken"
        ) from error
