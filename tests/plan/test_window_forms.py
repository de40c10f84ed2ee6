"""Every form of windows has a name and a windower; one without is refused by name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from strom.core.errors import GraphError
from strom.operators.window_choice import WINDOWERS, make_windower
from strom.plan.slicing import Slicing
from strom.plan.window_forms import (
    Counted,
    Counting,
    Firing,
    PaneRule,
    Panes,
    Sessions,
    Sliced,
    Ticking,
    WindowForm,
)

SLICING = Slicing(10, 10, 0)

FORMS: list[tuple[WindowForm, str]] = [
    (Sliced(SLICING), "sliced windows"),
    (Ticking(SLICING, Firing(5)), "sliced windows that fire every 5 ms"),
    (Ticking(SLICING, Firing(5, True)), "sliced windows that fire every 5 ms by the clock"),
    (Panes(SLICING, PaneRule()), "windows in panes"),
    (Counted(Counting(2, 2)), "windows by count"),
    (Sessions(), "session windows"),
]


def test_every_form_has_a_windower() -> None:
    assert set(WINDOWERS) == set(WindowForm.__subclasses__()) - {Unregistered}
    assert {type(form) for form, _ in FORMS} == set(WINDOWERS)


@pytest.mark.parametrize(("form", "name"), FORMS, ids=str)
def test_a_form_says_its_name_and_its_windower_is_made_of_its_fields(
    form: WindowForm, name: str
) -> None:
    assert form.name == name
    assert type(make_windower(form)).__name__ == WINDOWERS[type(form)][1]


@dataclass(frozen=True)
class Unregistered(WindowForm):
    @property
    def name(self) -> str:
        return "windows of no windower"


def test_a_form_without_a_windower_is_refused_by_name() -> None:
    with pytest.raises(GraphError, match="no windower runs the form Unregistered"):
        make_windower(Unregistered())
