"""`Runs` against lists."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.operators.tables.runs import Runs


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 9), max_size=4)), max_size=8
    )
)
def test_runs(steps: Any) -> None:
    runs, lists = Runs(), {slot: [] for slot in range(6)}
    runs.grow(6)
    for change in steps:
        lists.update(change)
        slots = np.array(list(change), dtype=np.int64)
        sizes = np.array([len(change[s]) for s in change], dtype=np.int64)
        runs.replace(slots, sizes, np.array(list(chain(*change.values())), dtype=np.int64))
        sizes, values = runs.gather(np.arange(6))
        assert sizes.tolist() == [len(lists[s]) for s in range(6)]
        assert values.tolist() == list(chain(*(lists[s] for s in range(6))))
        assert runs.live().tolist() == [s for s in range(6) if lists[s]]
    for _ in range(3000):
        runs.replace(np.arange(6), np.full(6, 5), np.arange(30))
    assert len(runs._arena) < 20_000
    runs.keep(np.array([1, 4]))
    assert runs.gather(np.arange(2))[1].tolist() == [*range(5, 10), *range(20, 25)]
