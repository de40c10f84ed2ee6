"""Which entries that came with files a program goes on with as they are.

Values in RocksDB are pickles. What one says depends on the program that reads it, unless it names
no class or function that a program can have otherwise: such a value is *plain*. A layout whose
entries are Python values says two things of them:

    type     the types that the state is declared with, as text; "" where they exclude nothing
    values   1 plain: each of them is the same to every program that declares that type
             2 own: at least one may not be; the program that keeps the state has written all, or
               has had them before it
             3 former: likewise, and the program that keeps the files has never asked for the state

A state begins as 1 and becomes 2 with the first value that is not plain (`plain_pickles`); 2
becomes 3 where another program begins with the files (`of_former`). Of several databases the
highest counts (`layouts.together`). Layouts of before had neither: what is known of their entries
is which program wrote them.
"""

from __future__ import annotations

from typing import Final

from .layouts import EXACT, LAYOUT, VALUES, Layout

TYPE: Final = "type"

PLAIN, OWN, FORMER = "1", "2", "3"


def goes_on(
    found: Layout, asked: Layout, same_program: bool, changed: bool = False
) -> dict[str, str] | None:
    """The layout of entries that were `found` in files, for a state that is `asked` for in one;
    None: they have to be read. `changed`: the program says that values have changed."""
    if VALUES not in asked:
        known = same_program or asked.get(LAYOUT) in EXACT
        return dict(found) if known and dict(found) == dict(asked) else None
    if _stored(found) != _stored(asked):
        return None
    values, same_type = found.get(VALUES), found.get(TYPE) == asked.get(TYPE)
    if values == PLAIN:
        return dict(found) if same_type and (same_program or not changed) else None
    if not same_program or values == FORMER:
        return None
    return {**asked, VALUES: OWN}


def of_former(layout: Layout) -> dict[str, str]:
    """Of entries with which another program begins, before it asks for their state."""
    known = layout.get(VALUES) == PLAIN or layout.get(LAYOUT) in EXACT
    return dict(layout) if known else {**layout, VALUES: FORMER}


def _stored(layout: Layout) -> dict[str, str]:
    """How the bytes of entries are to be read."""
    return {key: text for key, text in layout.items() if key not in (TYPE, VALUES)}
