"""What an operator knows for all of its keys goes wherever its key groups go."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from strom.core.ids import KeyGroupRange
from strom.state.backend import StateTable
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.shared_facts import SharedFacts


def backend(
    first: int, last: int, tables: Iterable[StateTable] | None = None
) -> MemoryKeyedStateBackend:
    made = MemoryKeyedStateBackend(KeyGroupRange(first, last), 8)
    if tables is not None:
        made.restore(tables)
    return made


def of_groups(tables: Iterable[StateTable], first: int, last: int) -> list[StateTable]:
    found = []
    for table in tables:
        groups = table.data.column("__key_group").to_numpy()
        rows = pa.array(np.flatnonzero((groups >= first) & (groups <= last)))
        found.append(StateTable(table.name, table.kind, table.data.take(rows), table.metadata))
    return found


def test_facts_are_there_after_a_rescale_and_learnt_once() -> None:
    one, two = backend(0, 3), backend(4, 7)
    facts = SharedFacts(one, "facts")
    assert facts.known("left") == []
    facts.learn("left", b"old")
    facts.learn("left", b"a")
    facts.learn("right", b"b")
    SharedFacts(two, "facts").learn("left", b"c")
    tables = [*one.snapshot().tables(), *two.snapshot().tables()]
    middle = backend(2, 5, of_groups(tables, 2, 5))
    known = SharedFacts(middle, "facts")
    assert sorted(known.known("left")) == [b"a", b"c"]
    assert known.known("right") == [b"b"]
    # Group 5 knew nothing of the right side: by now it does.
    last = SharedFacts(backend(5, 5, of_groups(middle.snapshot().tables(), 5, 5)), "facts")
    assert last.known("right") == [b"b"]


def test_a_snapshot_without_facts_has_none() -> None:
    made = backend(0, 7)
    SharedFacts(made, "facts")
    assert list(made.snapshot().tables()) == []
