"""The reference: a case run by the plain Python models."""

from __future__ import annotations

from collections import Counter

from .cases import Case, Table
from .comparing import plain_rows
from .programs import DROPPED
from .results import Result, modelled, only_inserts
from .table_model import table_rows
from .window_model import END_OF_TIME, WindowModel


def model_result(case: Case) -> Result | None:
    records, mark = case.records, -(2**63)
    if isinstance(case.operation, Table):
        marks = [mark] * len(records)
        for kind, *rest in case.script:
            if kind == "mark":
                mark = rest[0]
            elif kind == "rows":
                marks[slice(*rest)] = [mark] * (rest[1] - rest[0])
        chosen = chosen_rows(case)
        rows, late = table_rows(case, [records[i] for i in chosen], [marks[i] for i in chosen])
        found = plain_rows(rows)
        upsert = case.operation.what == "aggregate" and case.operation.upsert
        if case.operation.what in ("over", "rolling") or only_inserts(case):
            return Result(found, late_count=late)
        assert not upsert or len(set(found)) == len(found)
        return Result([(*row, ("int", 0)) for row in found], late_count=late)
    if not modelled(case.operation):
        return None
    model = WindowModel(case)
    passing = set(chosen_rows(case))
    for kind, *rest in case.script:
        if kind == "mark":
            model.advance(rest[0])
        elif kind == "rows":
            for at in range(*rest):
                if at in passing:
                    model.add(records[at])
    model.advance(END_OF_TIME)
    rows = [row for firing in model.firings for row in plain_rows(firing.rows)]
    late_rows = Counter(plain_rows(tuple(r.values()) for r in model.late))
    tagged = case.operation.late_tag
    return Result(rows, late_rows if tagged else Counter(), 0 if tagged else len(model.late))


def chosen_rows(case: Case) -> list[int]:
    """The records that pass the filter."""
    numbers = case.data.column("n").to_pylist()
    return [i for i, n in enumerate(numbers) if not (case.filtered and n % 7 == DROPPED)]
