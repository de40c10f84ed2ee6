"""When combining ahead of the exchange pays, and is tried again."""

from __future__ import annotations

from strom.operators.combining import worth as combining_worth
from strom.operators.combining.worth import Worth


def feed(worth: Worth, records: int, new: float, batch: int = 1 << 14) -> int:
    """Offer so many records of which a share is new; returns how many were combined."""
    combined = 0
    for _ in range(records // batch):
        if not worth.passes(batch):
            worth.combined(batch, int(batch * new), held=0)
            combined += batch
        worth.validate()
    return combined


def test_keys_that_repeat_are_combined_for_ever() -> None:
    assert feed(Worth(), 1 << 22, 0.3) == 1 << 22


def test_keys_that_do_not_repeat_are_tried_ever_more_rarely() -> None:
    worth = Worth()
    tried = 2 * combining_worth.TRIED
    assert feed(worth, tried + combining_worth.FIRST_REST, 0.9) == tried
    assert feed(worth, 1 << 26, 0.9) <= (1 << 26) * 0.03


def test_a_table_may_fill_up_first() -> None:
    """The first stretch of an attempt has many new keys by nature."""
    worth = Worth()
    assert feed(worth, combining_worth.TRIED, 0.9) == combining_worth.TRIED
    assert feed(worth, 1 << 22, 0.2) == 1 << 22


def test_when_keys_begin_to_repeat_it_goes_on() -> None:
    worth = Worth()
    feed(worth, 1 << 22, 0.9)
    feed(worth, combining_worth.LONGEST_REST, 0.1)
    assert feed(worth, 1 << 22, 0.1) == 1 << 22
