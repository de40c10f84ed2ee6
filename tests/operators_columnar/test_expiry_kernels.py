"""Kernels over stamps equal their plain-Python twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference_expiry
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.operators.kernels import expiry
from strom.operators.key_expiry import NEVER

SLOTS, TTL = 4, 10


def ints(numbers: Any) -> Any:
    return np.array(numbers, dtype=np.int64)


batches = st.lists(
    st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(-20, 40)), min_size=1), max_size=4
)


def as_dict(stamps: Any) -> dict[int, int]:
    return {slot: stamp for slot, stamp in enumerate(stamps.tolist()) if stamp != NEVER}


@settings(deadline=None)
@given(batches)
def test_first_of_a_while(batches: Any) -> None:
    stamps, plain = np.full(SLOTS, NEVER, np.int64), {}
    for batch in batches:
        slots, times = ([row[at] for row in batch] for at in range(2))
        rows = np.empty(len(batch), np.int64)
        count = expiry.first_of_a_while(ints(slots), ints(times), TTL, stamps, rows)
        want = reference_expiry.first_of_a_while(slots, times, TTL, plain)
        assert rows[:count].tolist() == want
        assert as_dict(stamps) == plain


@settings(deadline=None)
@given(batches)
def test_take_turns(batches: Any) -> None:
    stamps, plain = np.full(SLOTS, NEVER, np.int64), {}
    for batch in batches:
        slots, times = ([row[at] for row in batch] for at in range(2))
        of_rows, stale = np.empty((2, len(batch)), np.int64)
        turn = np.full(SLOTS, -1, np.int32)
        count = expiry.take_turns(ints(slots), ints(times), TTL, stamps, turn, of_rows, stale)
        turns, begun = reference_expiry.take_turns(slots, times, TTL, plain)
        assert (of_rows.tolist(), stale[:count].tolist()) == (turns, begun)
        last = dict(zip(slots, turns, strict=True))
        assert turn.tolist() == [last.get(slot, -1) for slot in range(SLOTS)]
        assert as_dict(stamps) == plain


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans())),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
)
def test_what_is_not_held(rows: Any, counts: list[int]) -> None:
    owners, flags = ([row[at] for row in rows] for at in range(2))
    found, held = np.empty(len(rows), np.bool_), ints(counts)
    number = expiry.find_unheld(ints(owners), np.array(flags, np.bool_), held, found)
    assert found.tolist() == reference_expiry.unheld(owners, flags, counts)
    assert (number, held.tolist()) == (sum(found), counts)
