"""Arrays that grow at their end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_FIRST = 1024


class Grower:
    """A numpy array of `length` entries in use, with room behind them."""

    def __init__(self, dtype: Any, fill: Any = None) -> None:
        self._fill = fill
        self.length = 0
        self.array: npt.NDArray[Any] = self._new(_FIRST, np.dtype(dtype))

    @property
    def used(self) -> npt.NDArray[Any]:
        """The entries in use; a view."""
        return self.array[: self.length]

    def append(self, values: npt.NDArray[Any]) -> None:
        self.extend(len(values))
        self.array[self.length - len(values) : self.length] = values

    def extend(self, count: int) -> None:
        """`count` more entries: `fill`, or whatever is there."""
        self.length += count
        if self.length > len(self.array):
            self._grow(self.length - count)

    def _grow(self, used: int) -> None:
        """Where nobody else has the array, the memory is lengthened in place: pages are moved, not
        copied."""
        size, before = max(len(self.array) * 3 // 2, self.length), len(self.array)
        try:
            self.array.resize(size)
        except ValueError:  # a snapshot shares it
            longer = self._new(size, self.array.dtype)
            longer[:used] = self.array[:used]
            self.array = longer
        else:
            if self._fill:
                self.array[before:] = self._fill

    def _new(self, size: int, dtype: Any) -> npt.NDArray[Any]:
        if self._fill is None:
            return np.empty(size, dtype=dtype)
        return np.full(size, self._fill, dtype=dtype)
