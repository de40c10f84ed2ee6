"""An entry of the row face as RocksDB holds it: namespace, key and value, each a pickle of its own.

    length of the namespace (4 bytes) | length of the key (4) | namespace | key | value

So each can be read, or carried on unread, without the others: files of a checkpoint are looked into
where the classes of the program are not there, and must not run what somebody else pickled.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, Final

from ...pickling import dumps

_HEAD: Final = struct.Struct(">II")

_PLAIN: Final = (type(None), bool, int, float, str, bytes)


class Unread:
    """What has to be unpickled with classes."""


UNREAD: Final = Unread()


def entry_bytes(namespace: Any, key: Any, stored: Any, what: str) -> bytes:
    """`what` names the value in the error of one that cannot be pickled."""
    return joined_parts(_pickled(namespace, what), _pickled(key, what), _pickled(stored, what))


def joined_parts(namespace: bytes, key: bytes, rest: bytes) -> bytes:
    """An entry; `namespace` and `key` are pickles."""
    return b"".join((_HEAD.pack(len(namespace), len(key)), namespace, key, rest))


def entry_parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The pickles of namespace and key, and what is behind them."""
    space, own = _HEAD.unpack_from(data)
    first, second = _HEAD.size + space, _HEAD.size + space + own
    return data[_HEAD.size : first], data[first:second], data[second:]


def namespace_part(data: bytes) -> bytes:
    """The first of `entry_parts`."""
    return data[_HEAD.size : _HEAD.size + _HEAD.unpack_from(data)[0]]


def plain(data: bytes) -> Any:
    """The value of a pickle if it is of a plain type, UNREAD if not; runs nothing."""
    try:
        value = _Plain(io.BytesIO(data)).load()
    except Exception:
        return UNREAD
    return value if type(value) in _PLAIN else UNREAD


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is of no plain value")


def _pickled(value: Any, what: str) -> bytes:
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    return dumps(value, what)
