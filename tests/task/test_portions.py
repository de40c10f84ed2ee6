"""Portions: large for quick chains, small for slow ones, and quick to change its mind."""

from __future__ import annotations

import pytest
from strom.engine.task.portions import FIRST, LEAST, LONGEST_S, Portions


def feed(portions: Portions, seconds_per_record: float, per_portion: float, times: int) -> float:
    """Take full portions; how long the last one took."""
    took = 0.0
    for _ in range(times):
        took = per_portion + portions.records * seconds_per_record
        portions.took(portions.records, took)
    return took


def test_a_quick_chain_gets_whole_batches() -> None:
    portions = Portions(16384)
    feed(portions, 1e-8, 5e-5, 10)
    assert portions.records >= FIRST << 10


def test_a_slow_chain_gets_what_it_can_do_in_time() -> None:
    portions = Portions(16384)
    assert feed(portions, 1e-3, 0.0, 5) <= LONGEST_S
    assert LEAST < portions.records <= 250


def test_a_chain_that_is_slow_per_batch_keeps_a_minimum() -> None:
    portions = Portions(16384)
    feed(portions, 0.0, 10.0, 20)
    assert portions.records == LEAST


def test_the_batch_size_of_the_job_may_be_less_than_the_minimum() -> None:
    portions = Portions(1)
    feed(portions, 60.0, 0.0, 3)
    assert portions.records == 1


def test_one_slow_portion_is_made_up_for() -> None:
    portions = Portions(16384)
    feed(portions, 1e-8, 0.0, 8)
    portions.took(portions.records, 5.0)
    feed(portions, 1e-8, 0.0, 8)
    assert portions.records > 100_000


@pytest.mark.parametrize("records", [1, 100])
def test_small_batches_say_nothing_about_large_ones(records: int) -> None:
    portions = Portions(16384)
    portions.took(records, 1e-6)
    assert portions.records == FIRST
