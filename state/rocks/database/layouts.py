"""What lies in RocksDB, read without the state that wrote it.

Each state says in text how its bytes are to be read (`layout`), a checkpoint that holds RocksDB's
files keeps that, and `tables_of` makes of the entries what the state's own whole snapshot has.
Used to restore into other backends and at other parallelisms, and to look into files alone: nothing
that is stored is run.

A place is  state (2 bytes) | key group (2) | whatever the layout says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.errors import StateError
from ...encoding import ARROW_TYPES, PICKLE, encode
from ...row_tables import KEY, NAMESPACE, VALUE
from ...stored import KEY_GROUP, StateTable
from .entry_bytes import UNREAD, entry_parts, plain

Layout: TypeAlias = Mapping[str, str]
Pair: TypeAlias = tuple[bytes, bytes]

LAYOUT: Final = "layout"
"""Of every layout, its short name."""

GENERATION: Final = "generation"
"""Of some layouts, a number: entries are read alike by any of them that is not less than theirs."""

VALUES: Final = "values"
"""Of layouts with Python values, a number: what is known of the programs that have them as they are
(`taken_over`). Of several the highest counts."""

PIECE: Final = 1 << 16
"""So many entries of RocksDB make a table."""

EXACT: Final = (
    *("slots", "valued", "typed", "typed_valued"),
    *("owned", "owned_valued", "owned_typed", "owned_typed_valued"),
    "keyed_values",
)
"""Layouts that say all of what is stored: entries in the same one are the same to any program. In
others are objects, which another program may have otherwise."""

GROUP_AT, REST_AT = 2, 4
"""Where the key group begins in a place, and what is behind it."""

Reader = Callable[[str, str, Layout, list[Pair], int], StateTable]
"""Makes a table of some entries: name and kind of the state, its layout, max parallelism."""

_NUMBERS: Final = (GENERATION, VALUES)
"""In which layouts may differ that are read together."""

_READERS: Final[dict[str, str]] = {
    "entries": "database.layouts.entries_table",
    "keyed_values": "tables.keyed_values.values_table",
    "lists": "values.element_layouts.lists_table",
    "maps": "values.element_layouts.maps_table",
    "objects": "tables.slot_layout.slots_table",
    "owned": "entries.entry_rows.owned_table",
    "owned_objects": "entries.entry_rows.owned_table",
    "owned_typed": "entries.entry_rows.owned_table",
    "owned_typed_valued": "entries.entry_rows.owned_table",
    "owned_valued": "entries.entry_rows.owned_table",
    "slots": "tables.slot_layout.slots_table",
    "stamped": "values.stamped_layout.stamped_table",
    "timers": "timers.timer_rows.timers_table",
    "typed": "tables.slot_layout.slots_table",
    "typed_valued": "tables.slot_layout.slots_table",
    "valued": "tables.slot_layout.slots_table",
}
"""Short name of a layout -> module here, and function."""

_CUTTERS: Final[dict[str, str]] = {
    "keyed_values": "tables.keyed_values.pieces_of_values",
    "lists": "values.element_layouts.pieces",
    "maps": "values.element_layouts.pieces",
    "objects": "tables.slot_layout.valued_pieces",
    "owned_objects": "tables.slot_layout.valued_pieces",
    "owned_typed_valued": "tables.slot_layout.valued_pieces",
    "owned_valued": "tables.slot_layout.valued_pieces",
    "typed_valued": "tables.slot_layout.valued_pieces",
    "valued": "tables.slot_layout.valued_pieces",
}
"""Likewise, what cuts entries into pieces, where not any of them may be in any piece, or some are
large."""


_SHADOWS: Final[dict[str, str]] = {
    "slots": "tables.slot_layout.places_in",
    "typed": "tables.slot_layout.places_in",
    "typed_valued": "tables.slot_layout.places_in",
    "valued": "tables.slot_layout.places_in",
}
"""Likewise, what tells where the rows of a table lie, of layouts whose entries do not count where
the tables beside them hold the key. Entries of other layouts that do not count are listed."""


def tables_of(
    name: str, kind: str, layout: Layout, pairs: Iterable[Pair], max_parallelism: int
) -> Iterator[StateTable]:
    """The entries of one state, in order of their places, as tables that are sorted by key group
    and of bounded size. StateError for a layout that is not known, or bytes that it does not fit.
    """
    read = _reader(name, layout)
    for piece in _pieces(layout, iter(pairs)):
        try:
            table = read(name, kind, layout, piece, max_parallelism)
        except StateError:
            raise
        except Exception as error:
            raise StateError(
                f"state '{name}': what lies in RocksDB is not as its layout {dict(layout)} says "
                f"({type(error).__name__}: {error})"
            ) from error
        yield table


def shadowed(
    layout: Layout, prefix: bytes, tables: Iterable[StateTable], max_parallelism: int
) -> frozenset[bytes]:
    """Places that do not count: these tables, of what was in memory, hold their keys. StateError
    for tables that are not of the layout."""
    place = _SHADOWS.get(layout.get(LAYOUT, ""))
    if place is None:
        return frozenset()
    tell = _function(place)
    found: list[bytes] = []
    for table in tables:
        try:
            found += tell(layout, prefix, table, max_parallelism)
        except (LookupError, TypeError, ValueError, pa.ArrowException) as error:
            raise StateError(
                f"state '{table.name}': its table has no keys as the layout {dict(layout)} of its "
                f"entries in RocksDB says ({type(error).__name__}: {error})"
            ) from error
    return frozenset(found)


def first_of(layout: Layout, pairs: Iterable[Pair], count: int) -> list[Pair]:
    """The first entries of a state, about so many, if there are any."""
    found = _pieces(layout, islice(pairs, count + 1))  # one may be of the layout's own
    return next(found, [])


def _pieces(layout: Layout, pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """The entries in order, in lists of bounded size."""
    place = _CUTTERS.get(layout[LAYOUT])
    if place is not None:
        yield from _function(place)(layout, pairs)
        return
    while piece := list(islice(pairs, PIECE)):
        yield piece


def _reader(name: str, layout: Layout) -> Reader:
    place = _READERS.get(layout.get(LAYOUT, ""))
    if place is None:
        raise StateError(
            f"state '{name}' lies in RocksDB in the unknown layout '{layout.get(LAYOUT)}' (known: "
            f"{sorted(_READERS)}): it was written by a newer version"
        )
    found: Reader = _function(place)
    return found


def _function(place: str) -> Any:
    module, _, function = place.rpartition(".")
    return getattr(importlib.import_module(f"..{module}", __package__), function)


def together(layouts: Iterable[Layout]) -> Layout | None:
    """The one by which entries in any of these are read; None if there is none."""
    found: Layout | None = None
    for layout in layouts:
        if found is None or layout == found:
            found = layout
            continue
        if _apart(found) != _apart(layout):
            return None
        joined = {**_apart(layout)}
        for name in _NUMBERS:
            if name in found or name in layout:
                known, other = _number(found, name), _number(layout, name)
                if known is None or other is None:
                    return None
                joined[name] = str(max(known, other))
        found = joined
    return found


def generation_of(layout: Layout) -> int | None:
    return _number(layout, GENERATION)


def _number(layout: Layout, name: str) -> int | None:
    text = layout.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _apart(layout: Layout) -> dict[str, str]:
    """But for what may differ."""
    return {key: text for key, text in layout.items() if key not in _NUMBERS}


def group_of(place: bytes) -> int:
    """The key group in a place."""
    return int.from_bytes(place[GROUP_AT:REST_AT], "big")


def groups_of(places: Iterable[bytes]) -> npt.NDArray[np.int32]:
    """The key groups in places."""
    heads = b"".join([place[GROUP_AT:REST_AT] for place in places])
    return np.frombuffer(heads, ">u2").astype(np.int32)


def entries_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """Of states of one value per key (`spaces`): entries as of `entry_bytes`."""
    parts = [entry_parts(data) for _, data in pairs]
    data: dict[str, pa.Array] = {KEY_GROUP: pa.array(groups_of(place for place, _ in pairs))}
    metadata = {}
    for at, column in enumerate((NAMESPACE, KEY, VALUE)):
        pickles = [part[at] for part in parts]
        data[column], metadata[column] = encoded_pickles(pickles, f"{column} of state '{name}'")
    return StateTable(name, kind, pa.table(data), metadata)


def encoded_pickles(pickles: list[bytes], what: str) -> tuple[pa.Array, str]:
    """As `encode` of the values, of which nothing but plain ones is read."""
    values: list[Any] = []
    for data in pickles:
        value = plain(data)
        if value is UNREAD:
            return pa.array(pickles, type=ARROW_TYPES[PICKLE]), PICKLE
        values.append(value)
    array, encoding = encode(values, what)
    if encoding == PICKLE:
        return pa.array(pickles, type=ARROW_TYPES[PICKLE]), PICKLE
    return array, encoding
