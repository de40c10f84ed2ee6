"""A point in time of a timer queue, and the table that is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from ..core.key_kinds import all_given
from .encoding import encode
from .increments import Layer
from .key_groups import group_order
from .row_tables import groups_of_keys
from .stored import KEY_GROUP, StateTable

Waiting = dict[tuple[Any, Any], int] | tuple[Any, Any, int]
"""The timers of one timestamp: (key, namespace) -> sequence number, in order of registration. A
tuple (key, namespace, sequence number) as long as there has been one only."""


@dataclass(frozen=True)
class TimerFreeze:
    """A point in time of a timer queue: `__key_group | timestamp | sequence | namespace | key`."""

    name: str
    waiting: Sequence[tuple[int, Waiting]]
    layer: Layer = "whole"

    def timers(self) -> Iterator[tuple[int, Any, Any, int]]:
        """(timestamp, key, namespace, sequence number) of each."""
        for timestamp, waiting in self.waiting:
            if isinstance(waiting, dict):
                for timer, sequence in waiting.items():
                    yield timestamp, *timer, sequence
            else:
                yield timestamp, *waiting

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group and within it by registration; None if there is nothing."""
        return self.encoded(max_parallelism) if any(True for _ in self.timers()) else None

    def encoded(self, max_parallelism: int) -> StateTable:
        """Also if there is nothing."""
        timers = sorted(self.timers(), key=itemgetter(3))
        timestamps = [timer[0] for timer in timers]
        keys = all_given([timer[1] for timer in timers])
        namespaces, sequences = [timer[2] for timer in timers], [timer[3] for timer in timers]
        what = f"timers '{self.name}'"
        key_column, key_encoding = encode(keys, f"key of {what}")
        groups = groups_of_keys(keys, key_column, key_encoding, max_parallelism)
        order = group_order(groups)
        namespace_column, namespace_encoding = encode(namespaces, f"namespace of {what}")
        data = pa.table(
            {
                KEY_GROUP: pa.array(groups),
                "timestamp": pa.array(timestamps, type=pa.int64()),
                "sequence": pa.array(sequences, type=pa.int64()),
                "namespace": namespace_column,
                "key": key_column,
            }
        )
        metadata = {"key": key_encoding, "namespace": namespace_encoding}
        return StateTable(self.name, "timers", data.take(pa.array(order)), metadata, self.layer)
