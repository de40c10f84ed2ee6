"""Keys that are Python objects, as codes: what kernels take where a key has no column.

A key that a Python function makes may be anything that a dict can hold. `ObjectKeys` gives each
distinct one an int64, its code, and operators then have a key column like any other, of the Arrow
type `ObjectKeyType`: a code that knows what it stands for. So tables, entries and buffers number
keys as they number any words, and whoever asks for the key groups of such a column gets those of
the keys, by their stable hashes, and never those of the codes.

Which keys are one key is what a dict of held keys says (`core.key_kinds`): 1, 1.0 and True are
three, as the exchange may send them to three places. NaN is one (whoever makes keys has made all
NaN one object; see `core.keys.findable`). Of equal keys the first one stands for all.

Codes mean something within one operator's subtask only, and only as long as a state holds them:
they never leave the operator, nor are they in snapshots. These hold the keys themselves, pickled on
the encoding thread (`stored_keys`), and a restore gives them new codes.

Codes that no state holds are forgotten when there are many, and used again (`forget`). A snapshot
in flight goes on reading what its codes stood for: what it has is never written, but copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Int64s, numpy_of
from ..core.errors import StateError, TypeMismatchError
from ..core.growing import Growing
from ..core.key_kinds import given, held_key, held_keys
from ..core.keys import findable
from .hashing import stable_hash
from .object_reader import ObjectReader
from .pickling import dumps, loads

Hashes = npt.NDArray[np.uint64]

STORED = pa.large_binary()
"""What snapshots hold: a pickle per key."""

FIRST_LIMIT = 4096
"""Keys known before those that no state holds are looked for."""

_SHOWN = 80
"""Characters of a key that a message quotes."""

_GONE = object()
"""In the place of a key that was forgotten."""


class ObjectKeyType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The type of a column of codes. It lives as long as its `keys`, which every state has that
    holds such a column."""

    def __init__(self, keys: ObjectKeys | None = None) -> None:
        self._keys = keys
        super().__init__(pa.int64(), "strom.object_key")

    @property
    def keys(self) -> ObjectKeys:
        """What the codes stand for."""
        assert self._keys is not None, "a column of object keys left its operator"
        return self._keys

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> ObjectKeyType:
        return cls()


def codes_of(column: pa.Array) -> Int64s:
    """The codes of a column of object keys, or of their storage."""
    plain = column.storage if isinstance(column.type, ObjectKeyType) else column
    codes: Int64s = numpy_of(plain)
    return codes


@dataclass(frozen=True)
class FrozenKeys:
    """What codes stood for at a point in time; for any thread."""

    owner: str
    objects: Sequence[Any]
    known: Hashes

    def hashes(self, codes: Int64s) -> Hashes:
        """The stable hash of each code's key. TypeMismatchError if one has none."""
        hashes: Hashes = self.known[codes]
        for at in np.flatnonzero(hashes == 0).tolist():
            hashes[at] = stable_hash(self.objects[codes[at]])
        return hashes

    def stored(self, codes: Int64s, state: str) -> pa.Array:
        """The keys as snapshots hold them, each distinct one pickled once. StateError names the
        operator, the state and the key that cannot be."""
        distinct, places = np.unique(codes, return_inverse=True)
        pickles = [self._pickled(self.objects[code], state) for code in distinct.tolist()]
        return pa.array(pickles, type=STORED).take(pa.array(places))

    def _pickled(self, key: Any, state: str) -> bytes:
        what = f"{self.owner}, state '{state}'"
        try:
            return dumps(key, what)
        except StateError:
            return dumps(key, f"{what}: key {_shown(key)}")


class ObjectKeys:
    """Keys and codes of one operator's subtask. Single-threaded, but for what `freeze` gave.

    Invariants: `_objects[code]` is the key, or gone if the code is in `_free`; `_known[code]` is
    its stable hash, 0 where it has to be asked again (there is none, or it is 0). `_codes` has the
    code of each key, as it is held. Places of codes in use are not written, and those not in use
    only in arrays that no snapshot was frozen from while they were in use.
    """

    def __init__(self, owner: str) -> None:
        """`owner`: names the operator in errors."""
        self.kind = ObjectKeyType(self)
        self._owner = owner
        self._codes: dict[Any, int] = {}
        self._objects: list[Any] = []
        self._known = Growing(np.uint64)
        self._free: list[int] = []
        self._limit = FIRST_LIMIT

    def __len__(self) -> int:
        """Keys that have codes."""
        return len(self._objects) - len(self._free)

    def column(self, keys: list[Any]) -> pa.Array:
        """The codes of these keys, which are hashable, findable, and as they are held; new keys get
        new ones."""
        known, codes = self._codes, self.find(keys)
        for row in np.flatnonzero(codes < 0).tolist():
            key = keys[row]
            code = known.get(key)
            if code is None:
                code = known[key] = self._enter(given(key), _hash(key))
            codes[row] = code
        return self._typed(codes)

    def find(self, keys: list[Any]) -> Int64s:
        """The codes of such keys, -1 for those that have none."""
        known = self._codes
        return np.array([known.get(key, -1) for key in keys], dtype=np.int64)

    def apart(self) -> ObjectKeys:
        """Others of this operator, of which no key is known: for keys that pass through."""
        return ObjectKeys(self._owner)

    def objects(self, column: pa.Array) -> list[Any]:
        """The keys of a column of codes."""
        objects = self._objects
        return [objects[code] for code in codes_of(column).tolist()]

    def hashes(self, column: pa.Array) -> Hashes:
        """The stable hash of each key. TypeMismatchError if one has none."""
        return self.freeze().hashes(codes_of(column))

    def known(self) -> list[Any]:
        """All keys that have codes."""
        return [key for key in self._objects if key is not _GONE]

    def freeze(self) -> FrozenKeys:
        """What the codes stand for that there are now."""
        return FrozenKeys(self._owner, self._objects, self._known.array)

    def restored(self, column: pa.ChunkedArray, state: str) -> pa.Array:
        """The codes of keys that a snapshot holds."""
        if not len(column):
            return self._typed(np.empty(0, dtype=np.int64))
        encoded = pa.concat_arrays(column.chunks).dictionary_encode()
        what = f"{self._owner}, key of state '{state}'"
        reader = ObjectReader(what, fixed=True)
        keys = findable([loads(data, what, reader) for data in encoded.dictionary.to_pylist()])
        codes = codes_of(self.column(held_keys(keys)))
        return self._typed(codes[numpy_of(encoded.indices)])

    @property
    def crowded(self) -> bool:
        """Whether it is time to look which codes states hold, and to `forget` the others."""
        return len(self) > self._limit

    def marks(self) -> Bools:
        """For each code there may be, false: for states to set what they hold."""
        return np.zeros(len(self._objects), dtype=np.bool_)

    def forget(self, held: Bools) -> None:
        """Forget all codes but those `held`: no state, and nobody else, knows the others."""
        objects = list(self._objects)
        for code in np.flatnonzero(~held).tolist():
            key = objects[code]
            if key is _GONE:
                continue
            objects[code] = _GONE
            del self._codes[held_key(key)]
        while objects and objects[-1] is _GONE:
            objects.pop()
        self._objects = objects
        self._known = Growing.over(self._known.array[: len(objects)].copy())
        self._free = [code for code, key in enumerate(objects) if key is _GONE]
        self._limit = max(FIRST_LIMIT, 2 * len(self))

    @property
    def nbytes(self) -> int:
        """A guess: what Python objects take is not known."""
        return 200 * len(self._objects)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        used = {code for code, key in enumerate(self._objects) if key is not _GONE}
        assert used == set(self._codes.values())
        assert len(self._codes) == len(used) == len(self)
        assert used.isdisjoint(self._free)
        for code in used:
            assert int(self._known.array[code]) == _hash(self._objects[code])

    def _enter(self, key: Any, hashed: int) -> int:
        """A code for a key that has none."""
        if self._free:
            code = self._free.pop()
            self._objects[code] = key
        else:
            code = len(self._objects)
            self._objects.append(key)
            self._known.reserve(code + 1)
        self._known.array[code] = hashed
        return code

    def _typed(self, codes: Int64s) -> pa.Array:
        return pa.ExtensionArray.from_storage(self.kind, pa.array(codes))


def _hash(key: Any) -> int:
    """The stable hash, 0 if there is none: only who needs it is told so."""
    try:
        return stable_hash(key)
    except TypeMismatchError:
        return 0


def _shown(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
