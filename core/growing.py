"""Arrays that grow at their end.

Large ones are memory maps of their own: lengthening one moves pages, it copies nothing and never
holds both, and what is not written yet takes no memory. (`ndarray.resize` writes zeros there.)
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_FIRST = 64
_MAPPED = 1 << 20
"""Arrays of so many bytes, and larger ones, are maps."""

_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)


class Growing:
    """A numpy array, `array`, that can be made longer. Whoever took a view of it keeps it as it
    was: then growing copies."""

    def __init__(
        self, dtype: Any, fill: int | float | None = None, size: int = 0, huge: bool = True
    ) -> None:
        """`fill`: what new entries hold; None: anything. `huge`: of huge pages, in which entries
        are found more quickly one by one at random, and which are made more slowly."""
        self._dtype = np.dtype(dtype)
        self._fill = fill
        self._huge = huge and _HUGE is not None
        self._map: mmap.mmap | None = None
        self.array: npt.NDArray[Any] = np.empty(0, self._dtype)
        if size:
            self._lengthen(size)

    @classmethod
    def over(cls, array: npt.NDArray[Any], fill: int | float | None = None) -> Growing:
        """One that begins as this array, which is its own from here on."""
        made = cls(array.dtype, fill)
        made.array = array
        return made

    def reserve(self, size: int) -> None:
        """Have at least `size` entries; grows by more than that, so that it seldom grows."""
        have = len(self.array)
        if size > have:
            more = have // 4 if have * self._dtype.itemsize >= _MAPPED else have
            self._lengthen(max(size, have + more, _FIRST))

    def _lengthen(self, size: int) -> None:
        have = len(self.array)
        needed = size * self._dtype.itemsize
        if needed < _MAPPED:
            self._move(np.empty(size, self._dtype))
        elif not self._remapped(needed):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._map = mmap.mmap(-1, needed, flags=flags)
            self._move(self._mapped())
        if self._fill is not None and (self._fill != 0 or self._map is None):
            new = self.array[have:]  # a map's new pages are zeros
            if self._dtype.kind == "V":
                new = new.view(np.uint8)
            new[:] = self._fill

    def _remapped(self, needed: int) -> bool:
        """Whether the map could be lengthened: not while anybody looks at it, and not everywhere
        can maps be resized."""
        if self._map is None:
            return False
        self.array = self.array[:0].copy()
        try:
            self._map.resize(needed)
        except (BufferError, SystemError, ValueError):
            resized = False
        else:
            resized = True
        self.array = self._mapped()
        return resized

    def _mapped(self) -> npt.NDArray[Any]:
        assert self._map is not None
        if self._huge and _HUGE is not None:
            self._map.madvise(_HUGE)
        return np.frombuffer(self._map, self._dtype)

    def _move(self, longer: npt.NDArray[Any]) -> None:
        longer[: len(self.array)] = self.array
        self.array = longer


class GrowingList(Growing):
    """One of which the first `length` entries are in use."""

    def __init__(self, dtype: Any, fill: Any = None, huge: bool = False) -> None:
        """`fill`: what `extend` puts there; None: anything."""
        super().__init__(dtype, huge=huge)
        self._new = fill
        self.length = 0

    @property
    def used(self) -> npt.NDArray[Any]:
        """The entries in use; a view."""
        return self.array[: self.length]

    def append(self, values: npt.NDArray[Any]) -> None:
        before = self.length
        self.reserve(before + len(values))
        self.length += len(values)
        self.array[before : self.length] = values

    def extend(self, count: int) -> None:
        """`count` more entries."""
        before = self.length
        self.reserve(before + count)
        self.length += count
        if self._new is not None:
            self.array[before : self.length] = self._new
