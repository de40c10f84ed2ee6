"""Python objects under integer codes, one column of a table of state: windows, which may be of any
class. It is to objects what `value_store.ValueStore` is to Arrow values, and is used in its place;
they are pickled on the encoding thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from .object_keys import STORED
from .object_reader import ObjectReader
from .pickling import dumps, loads
from .value_store import FIRST_LIMIT, Codes


class ObjectValues:
    """Code i is the i-th object put in since the last `compact`; -1 stands for none.

    Invariant: a list that a snapshot was frozen from only grows."""

    wide = STORED

    def __init__(self, what: str) -> None:
        """`what`: names the objects in errors."""
        self._what = what
        self._objects: list[Any] = []
        self._limit = FIRST_LIMIT

    def put(self, objects: Iterable[Any]) -> Codes:
        """The codes of these, one each."""
        first = len(self._objects)
        self._objects.extend(objects)
        return np.arange(first, len(self._objects), dtype=np.int64)

    def take(self, codes: Codes) -> list[Any]:
        """What these codes, none of them -1, stand for."""
        objects = self._objects
        return [objects[code] for code in codes.tolist()]

    @property
    def crowded(self) -> bool:
        return len(self._objects) > self._limit

    def append(self, values: pa.Array) -> Codes:
        reader = ObjectReader(self._what, fixed=True)
        return self.put([loads(data, self._what, reader) for data in values.to_pylist()])

    def compact(self, codes: Codes) -> None:
        held = codes >= 0
        live = np.unique(codes[held])
        self._objects = self.take(live)
        codes[held] = np.searchsorted(live, codes[held])
        self._limit = max(FIRST_LIMIT, 2 * len(live))

    def freeze(self) -> Callable[[Codes], pa.Array]:
        objects, what = self._objects, self._what

        def pickled(codes: Codes) -> pa.Array:
            distinct, places = np.unique(codes, return_inverse=True)
            data = [None if c < 0 else dumps(objects[c], what) for c in distinct.tolist()]
            return pa.array(data, type=STORED).take(pa.array(places))

        return pickled

    def stored(self, codes: Codes) -> pa.Array:
        """As of `freeze`, now."""
        return self.freeze()(codes)

    @property
    def nbytes(self) -> int:
        """A guess: what Python objects take is not known."""
        return 100 * len(self._objects)
