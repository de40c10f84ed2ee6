"""All that one expiring state holds: removal in the background, snapshots and restores.

A snapshot has the columns of a state that does not expire, and one of stamps: `processing_stamp` or
`event_stamp`. Read into a state that does not expire, the stamps mean nothing and everything lives
on. What was stored without stamps counts from its restore, or from the first watermark behind it.
Stamps of the one time mean nothing in the other: that is refused.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from ..core.errors import StateError
from ..core.key_kinds import held_keys
from ..core.keys import findable
from .backend import StateTable
from .descriptors import StateDescriptor
from .expiry import EVENT_STAMP, PROCESSING_STAMP, UNKNOWN, Expiry
from .row_changes import Marks, RowChanges
from .row_states import Spaces
from .row_tables import KEY, MAP_KEY, NAMESPACE, VALUE, RowFreeze, held_apart, stored_columns

Stamps = list[int]


class ExpiringSpaces:
    """`spaces` are those of the state's views (`expiring_states`)."""

    def __init__(
        self,
        descriptor: StateDescriptor,
        kind: str,
        expiry: Expiry,
        tables: Iterable[StateTable],
        changes: RowChanges,
    ) -> None:
        """`tables`: what was restored."""
        self._changes = changes
        self._descriptor = descriptor
        self.name = descriptor.name
        self.kind = kind
        self.expiry = expiry
        self.spaces: Spaces = {None: OrderedDict()}
        self._rotation: Iterator[Any] = iter(())
        """Namespaces that are still to be looked at in this round."""
        self._restore(tables)

    def sweep(self, records: int) -> None:
        """See `Sweeping`. Namespaces take turns."""
        limit = records * self.expiry.per_record
        cutoff = self.expiry.background() - self.expiry.ttl
        for namespace in self._next_spaces(limit):
            limit -= self._sweep_one(namespace, cutoff, limit)
            if limit <= 0:
                return

    def begin_event_time(self, watermark: int) -> None:
        """What was written before any watermark counts from the first one."""
        if self.expiry.event:
            self._changes.stop()
            for data in self.spaces.values():
                for key, stored in data.items():
                    data[key] = self._stamped_anew(stored, watermark)

    def keys(self) -> list[Any]:
        """Of the state without namespace: those that have something which has not expired."""
        cutoff, gone = self.expiry.background() - self.expiry.ttl, self.expiry.gone
        data = self.spaces[None]
        return [
            key
            for key, stored in data.items()
            if not all(gone(stamp, cutoff) for stamp in self._stamps_of(stored))
        ]

    def freeze(self, name: str, some: Spaces | None = None) -> RowFreeze:
        """What has not expired, as it is now. `some`: this only, of these spaces."""
        spaces = self.spaces if some is None else some
        keys: list[Any] = []
        stored: list[Any] = []
        for data in spaces.values():
            keys.extend(dict.keys(data))  # an ordered dict's own are slow; a restore sorts
            stored.extend(dict.values(data))
        spans = [len(data) for data in spaces.values()]
        lengths = np.ones(len(keys), dtype=np.int64)
        map_keys: list[Any] | None = None
        pairs = stored
        if self.kind in ("list", "map"):
            lengths = np.fromiter(map(len, stored), dtype=np.int64, count=len(stored))
            if self.kind == "map":
                map_keys = list(chain.from_iterable(stored))
                stored = [entries.values() for entries in stored]
            pairs = list(chain.from_iterable(stored))
        stamps = np.array([pair[1] for pair in pairs], dtype=np.int64)
        live = (stamps > self.expiry.background() - self.expiry.ttl) | (stamps == UNKNOWN)
        if not live.all():
            owners = np.repeat(np.arange(len(keys)), lengths)[live]
            lengths = np.bincount(owners, minlength=len(keys))
            kept = lengths > 0
            ends = np.cumsum([0, *spans])
            counts = np.concatenate([[0], np.cumsum(kept)])[ends]
            spans = np.diff(counts).tolist()
            keys, lengths = list(compress(keys, kept)), lengths[kept]
            pairs, stamps = list(compress(pairs, live)), stamps[live]
            map_keys = None if map_keys is None else list(compress(map_keys, live))
        values, pickled = held_apart(name, [pair[0] for pair in pairs])
        namespaces = list(zip(spaces, spans, strict=True))
        made = RowFreeze(name, self.kind, namespaces, keys, lengths, map_keys, values, pickled)
        return replace(made, stamps=stamps, stamp_column=self.expiry.column)

    # --- removal -----------------------------------------------------------------------------

    def _next_spaces(self, limit: int) -> list[Any]:
        if len(self.spaces) == 1:
            return [None]
        some = list(islice(self._rotation, limit))
        if len(some) < limit:
            self._rotation = iter(list(self.spaces))
            more = islice(self._rotation, min(limit - len(some), len(self.spaces)))
            some = list(dict.fromkeys([*some, *more]))
        return some

    def _sweep_one(self, namespace: Any, cutoff: int, limit: int) -> int:
        """Remove keys at the front of a namespace, at most `limit`; how many were looked at."""
        data = self.spaces.get(namespace)
        if data is None:
            return 0
        assert isinstance(data, OrderedDict)
        looked = self._drop_keys(data, cutoff, limit, self._changes.marks(namespace))
        if not data and namespace is not None:
            self.spaces.pop(namespace, None)
        return max(looked, 1)

    def _drop_keys(
        self, data: OrderedDict[Any, Any], cutoff: int, limit: int, marks: Marks | None
    ) -> int:
        gone, looked, changes = self.expiry.gone, 0, self._changes
        if self.kind not in ("list", "map"):
            while looked < limit and data and gone(next(iter(data.values()))[1], cutoff):
                key, _ = data.popitem(last=False)
                looked += 1
                if marks is not None:
                    changes.removed(marks, key)
            return looked
        while looked < limit and data:
            key = next(iter(data))
            if not gone(self._latest(data[key]), cutoff):
                break
            looked += 1
            stored = self._pruned(data[key], cutoff)
            if stored is None:
                del data[key]
            else:
                data[key] = stored
                data.move_to_end(key)
            if marks is not None:
                changes.removed(marks, key)
        return looked

    def _pruned(self, stored: Any, cutoff: int) -> Any:
        """A list or map without what has expired; None if nothing is left."""
        gone = self.expiry.gone
        if self.kind == "list":
            return deque([pair for pair in stored if not gone(pair[1], cutoff)]) or None
        live = [(key, pair) for key, pair in stored.items() if not gone(pair[1], cutoff)]
        return OrderedDict(live) or None

    def _latest(self, stored: Any) -> int:
        """The stamp that the key was given last."""
        match self.kind:
            case "list":
                stamp = stored[-1][1]
            case "map":
                stamp = next(reversed(stored.values()))[1]
            case _:
                stamp = stored[1]
        return stamp  # type: ignore[no-any-return]

    def _stamps_of(self, stored: Any) -> Stamps:
        """All of them; by event time the last one may not be the latest."""
        match self.kind:
            case "list":
                return [stamp for _, stamp in stored]
            case "map":
                return [stamp for _, stamp in stored.values()]
        return [stored[1]]

    def _stamped_anew(self, stored: Any, stamp: int) -> Any:
        def anew(pair: tuple[Any, int]) -> tuple[Any, int]:
            return (pair[0], stamp) if pair[1] == UNKNOWN else pair

        match self.kind:
            case "list":
                return deque([anew(pair) for pair in stored])
            case "map":
                return OrderedDict((key, anew(pair)) for key, pair in stored.items())
        return anew(stored)

    # --- snapshots ---------------------------------------------------------------------------

    def _restore(self, tables: Iterable[StateTable]) -> None:
        for table in tables:
            self._read(table)
        for namespace, data in self.spaces.items():
            latest = sorted(data, key=lambda key: self._latest(data[key]))
            self.spaces[namespace] = OrderedDict((key, data[key]) for key in latest)

    def _read(self, table: StateTable) -> None:
        columns = stored_columns(table, self._descriptor)
        rows = zip(columns[NAMESPACE], held_keys(findable(columns[KEY])), strict=True)
        stamped = zip(columns[VALUE], self._stamps(columns, table.data.num_rows), strict=True)
        spaces = self.spaces
        match self.kind:
            case "list":
                for (namespace, key), pair in zip(rows, stamped, strict=True):
                    spaces.setdefault(namespace, {}).setdefault(key, deque()).append(pair)
            case "map":
                entries = zip(columns[MAP_KEY], stamped, strict=True)
                for (namespace, key), (map_key, pair) in zip(rows, entries, strict=True):
                    of_key = spaces.setdefault(namespace, {}).setdefault(key, OrderedDict())
                    of_key[map_key] = pair
            case _:
                for (namespace, key), pair in zip(rows, stamped, strict=True):
                    spaces.setdefault(namespace, {})[key] = pair

    def _stamps(self, columns: dict[str, list[Any]], count: int) -> Stamps:
        mine = self.expiry.column
        for other, time in ((EVENT_STAMP, "event time"), (PROCESSING_STAMP, "processing time")):
            if other in columns and other != mine:
                raise StateError(
                    f"state '{self.name}' was stored with stamps of {time} and is now to expire by "
                    "the other time: keep its time characteristic, or give it another name"
                )
        if mine in columns:
            stamps = columns[mine]
            if UNKNOWN in stamps:
                self.expiry.time.unknown = True
            return stamps
        return [self.expiry.now()] * count
