"""What a run of a case gave, and what of it must be equal whatever way it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...api.windows.continuous_triggers import ContinuousEventTimeTrigger
from ...api.windows.session_windows import EventTimeSessionWindows
from ...api.windows.triggers import EventTimeTrigger, PurgingTrigger
from .cases import Case, Table, Windows
from .comparing import PlainRow, materialised


@dataclass
class Result:
    """What one way gave. `rows`: in order, as plain values. None: this way does not tell."""

    rows: list[PlainRow]
    late: Counter[PlainRow] | None = None
    late_count: int | None = None
    schemas: set[str] = field(default_factory=set)


def settled(case: Case, rows: Sequence[PlainRow]) -> Counter[Any]:
    """What must be equal: a changelog applied, of windows that fire several times the last result,
    all rows otherwise."""
    operation = case.operation
    if isinstance(operation, Table):
        if operation.what in ("over", "rolling") or only_inserts(case):
            return Counter(rows)
        upsert = operation.what == "aggregate" and operation.upsert
        return materialised(rows, len(case.key) if upsert else None)
    if not fires_again(operation):
        return Counter(rows)
    width = len(rows[0]) if rows else 0
    at = len(case.key) if operation.what == "aggregate" else case.data.num_columns
    last: dict[Any, list[PlainRow]] = {}
    for row in rows:
        key = row[: len(case.key)] if operation.what == "aggregate" else _key_of(case, row)
        window = (key, row[at], row[at + 1])
        again = case.rank is None or operation.what != "top_n" or row[width - 1] == ("int", 1)
        if again:
            last[window] = []
        last[window].append(row)
    if isinstance(operation.assigner, EventTimeSessionWindows):
        last = {w: rows for w, rows in last.items() if not any(_inside(w, o) for o in last)}
    return Counter((w, *row) for w, rows in last.items() for row in rows)


def _inside(window: Any, other: Any) -> bool:
    """Whether a session became part of another."""
    if window == other or window[0] != other[0]:
        return False
    return bool(other[1][1] <= window[1][1] and window[2][1] <= other[2][1])


def _key_of(case: Case, row: PlainRow) -> PlainRow:
    names = case.data.schema.names
    return tuple(row[names.index(name)] for name in case.key)


def only_inserts(case: Case) -> bool:
    operation = case.operation
    assert isinstance(operation, Table)
    first = operation.what == "deduplicate" and operation.keep == "first"
    return first and not case.order and not case.changelog


def fires_again(operation: Windows) -> bool:
    trigger = operation.trigger
    if isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    return operation.lateness > 0 or isinstance(trigger, ContinuousEventTimeTrigger)


def comparable(case: Case) -> bool:
    """Whether the last results can be told from the output: windows of several rows that fire
    again cannot, unless ranks say where one begins."""
    operation = case.operation
    if not isinstance(operation, Windows) or not fires_again(operation):
        return True
    several = operation.what == "extreme" and case.ties
    return not several and (operation.what != "top_n" or case.rank is not None)


def modelled(operation: Windows) -> bool:
    """Whether the model knows the trigger."""
    if not operation.assigner.is_event_time():
        return True
    trigger = operation.trigger
    if isinstance(trigger, PurgingTrigger):
        return trigger.nested_trigger == EventTimeTrigger() and not operation.lateness
    return trigger is None or isinstance(trigger, (EventTimeTrigger, ContinuousEventTimeTrigger))
