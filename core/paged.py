"""A mapping that never changes, of keys that are known from the start: a changed one costs little.

Whoever publishes a picture of many things after each event cannot copy all of them each time. Here
values lie in pages: one that is changed shares all pages with the one before but those that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PAGE: Final = 128


class Paged(Mapping[K, V], Generic[K, V]):
    """Some of the keys have a value, in the order of `keys`, whatever was changed when.

    >>> one = Paged("abc").changed({"c": 3, "a": 1})
    >>> two = one.changed({"b": 2}).without(["a", "x"])
    >>> dict(one), dict(two)
    ({'a': 1, 'c': 3}, {'b': 2, 'c': 3})
    """

    __slots__ = ("_filled", "_pages", "_places")

    def __init__(self, keys: Iterable[K], values: Mapping[K, V] | None = None) -> None:
        """`keys`: all that it may ever have."""
        self._places = {key: place for place, key in enumerate(keys)}
        self._pages: tuple[tuple[V | None, ...], ...] = tuple(
            (None,) * min(PAGE, len(self._places) - first)
            for first in range(0, len(self._places), PAGE)
        )
        """None: no value."""
        self._filled = 0
        if values:
            whole = self.changed(values)
            self._pages, self._filled = whole._pages, whole._filled

    def changed(self, values: Mapping[K, V | None]) -> Paged[K, V]:
        """With these; None: without one. KeyError for a key that it cannot have."""
        pages: dict[int, list[V | None]] = {}
        filled = self._filled
        for key, value in values.items():
            number, at = divmod(self._places[key], PAGE)
            page = pages.get(number)
            if page is None:
                page = pages[number] = list(self._pages[number])
            filled += (value is not None) - (page[at] is not None)
            page[at] = value
        every = list(self._pages)
        for number, page in pages.items():
            every[number] = tuple(page)
        found: Paged[K, V] = Paged.__new__(Paged)
        found._places, found._pages, found._filled = self._places, tuple(every), filled
        return found

    def without(self, keys: Iterable[K]) -> Paged[K, V]:
        """Those that it cannot have are passed over."""
        return self.changed({key: None for key in keys if key in self._places})

    def __getitem__(self, key: K) -> V:
        number, at = divmod(self._places[key], PAGE)
        value = self._pages[number][at]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        values = chain.from_iterable(self._pages)
        return (k for k, v in zip(self._places, values, strict=True) if v is not None)

    def __len__(self) -> int:
        return self._filled
