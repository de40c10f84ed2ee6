"""What an operator must know for all of its keys: a few names with bytes.

Kept as one row per key group and name, so that each subtask has them after a rescale, wherever the
groups go. Written when a fact is learnt, so nothing is left to do before a snapshot.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .backend import KeyedStateBackend
from .key_groups import owned_groups

SCHEMA = pa.schema([pa.field("name", pa.string()), pa.field("value", pa.binary())])


class SharedFacts:
    """Invariant: the state has `_facts` for each key group of this subtask."""

    def __init__(self, state: KeyedStateBackend, name: str) -> None:
        self._buffer = state.buffer(name, SCHEMA)
        self._groups = owned_groups(state.key_groups)
        self._facts: dict[str, list[bytes]] = {}
        rows, _ = self._buffer.get(0)
        columns = [column.to_pylist() for column in rows.columns]
        for fact, value in dict.fromkeys(zip(*columns, strict=True)):
            self._facts.setdefault(fact, []).append(value)
        self._write()

    def known(self, name: str) -> list[bytes]:
        """What this subtask learnt, or all that former subtasks did."""
        return self._facts.get(name, [])

    def learn(self, name: str, value: bytes) -> None:
        """From here on this is what is known."""
        if self.known(name) != [value]:
            self._facts[name] = [value]
            self._write()

    def _write(self) -> None:
        facts = [(name, value) for name, values in self._facts.items() for value in values]
        columns = [
            pa.array([fact[at] for fact in facts] * len(self._groups), kind)
            for at, kind in enumerate(SCHEMA.types)
        ]
        groups = np.repeat(self._groups, len(facts))
        self._buffer.replace(0, pa.Table.from_arrays(columns, schema=SCHEMA), groups)
