"""Numbered messages come out in order, whatever order they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.engine.hosts.resequencer import Numbering, Resequencer


@given(st.permutations(range(12)))
def test_any_order_becomes_the_order(arrival: list[int]) -> None:
    order: Resequencer[str] = Resequencer()
    out: list[str] = []
    for number in arrival:
        out += order.accept(number, f"m{number}")
        order.validate()
        assert out == [f"m{i}" for i in range(len(out))]
    assert len(out) == 12


def test_a_number_comes_once() -> None:
    order: Resequencer[str] = Resequencer()
    order.accept(0, "a")
    order.accept(2, "c")
    for number in (0, 2):
        with pytest.raises(ValueError, match="came twice"):
            order.accept(number, "again")


def test_numbers_count_up() -> None:
    numbers = Numbering()
    sent: list[int] = []
    for _ in range(3):
        numbers.send(sent.append)
    assert sent == [0, 1, 2]


def test_a_message_that_cannot_be_sent_leaves_no_gap() -> None:
    numbers = Numbering()
    sent: list[int] = []

    def refuse(number: int) -> None:
        raise TypeError("cannot pickle this")

    numbers.send(sent.append)
    with pytest.raises(TypeError):
        numbers.send(refuse)
    numbers.send(sent.append)
    assert sent == [0, 1]
