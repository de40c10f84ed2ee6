"""Tables per key in plain Python: what is left after all records."""

from __future__ import annotations

from typing import Any

from ...core.row_kind import ROW_KIND
from .cases import Case, Table
from .comparing import plain
from .folds import Record, compare, in_order
from .lives import lives_of
from .window_model import folded

Rows = list[tuple[Any, ...]]


def table_rows(case: Case, records: list[Record], marks: list[int]) -> tuple[Rows, int]:
    """The rows of the result (a changelog's after applying it), and how many records are late.
    marks: the watermark when each record came."""
    operation = case.operation
    assert isinstance(operation, Table)
    late = 0
    if operation.what == "over" and not operation.arrival:
        in_time = [r["ts"] > mark for r, mark in zip(records, marks, strict=True)]
        late = in_time.count(False)
        records = [r for r, ok in zip(records, in_time, strict=True) if ok]
    groups: dict[Any, list[Record]] = {}
    for record in records:
        key = tuple(plain(record[name]) for name in case.key)
        groups.setdefault(key, []).append(record)
    rows: Rows = []
    for group in groups.values():
        if operation.event_ttl is None:
            rows += _of_group(case, operation, _left(group))
            continue
        lives = lives_of(case, operation, group, operation.event_ttl)
        if operation.what == "aggregate" and operation.upsert:
            lives = lives[-1:]  # which takes the place of those before
        for life in lives:
            rows += _of_group(case, operation, _left(life))
    return rows, late


def _left(group: list[Record]) -> list[Record]:
    """A changelog's records that were not taken away; without row kinds."""
    if ROW_KIND not in group[0]:
        return group
    left: dict[int, Record] = {}
    for record in group:
        if record[ROW_KIND] in (0, 2):
            left[record["n"]] = {k: v for k, v in record.items() if k != ROW_KIND}
        else:
            left.pop(record["n"], None)  # which may have been forgotten
    return list(left.values())


def _of_group(case: Case, operation: Table, group: list[Record]) -> Rows:
    if not group:
        return []
    match operation.what:
        case "aggregate":
            key = tuple(group[0][name] for name in case.key)
            return [(*key, *folded(case, group))]
        case "top_n":
            best = in_order(group, case.order)[: case.n]
            if case.rank is None:
                return [tuple(r.values()) for r in best]
            return [(*r.values(), place) for place, r in enumerate(best, 1)]
        case "deduplicate":
            return [tuple(_kept(case, operation.keep, group).values())]
        case "over":
            return _over(case, operation, group)
    return _rolling(case, operation, group)


def _kept(case: Case, keep: str, group: list[Record]) -> Record:
    """Nulls are worse than any value either way; of equals the first or last to arrive."""
    if not case.order:
        return group[0] if keep == "first" else group[-1]
    if keep == "first":
        return in_order(group, case.order)[0]
    return in_order(group[::-1], [(name, not descending) for name, descending in case.order])[0]


def _over(case: Case, operation: Table, group: list[Record]) -> Rows:
    ordered = group if operation.arrival else sorted(group, key=lambda r: int(r["ts"]))
    rows: Rows = []
    for at, record in enumerate(ordered):
        frame = ordered[: at + 1]
        if operation.rows is not None:
            frame = frame[-operation.rows :]
        elif operation.range_ms is not None:
            since = record["ts"] - operation.range_ms
            frame = [r for r in ordered if since <= r["ts"] <= record["ts"]]
        rows.append((*record.values(), *folded(case, frame)))
    return rows


def _rolling(case: Case, operation: Table, group: list[Record]) -> Rows:
    name, rows = case.field, []
    largest = operation.rolling.startswith("max")
    for at, record in enumerate(group):
        seen = [r for r in group[: at + 1] if r[name] is not None]
        value = None
        if operation.rolling == "sum":
            total = [r[name] for r in seen]
            value = (
                (sum(total) if isinstance(total[0], float) else sum(map(int, total)))
                if total
                else None
            )
            rows.append(tuple({**record, name: value}.values()))
            continue
        best = None
        for one in seen:
            order = 1 if best is None else compare(one[name], best[name])
            if best is None or (order > 0 if largest else order < 0):
                best = one
        if operation.rolling.endswith("_by"):
            rows.append(tuple((best or group[0]).values()))
        else:
            rows.append(tuple({**record, name: best and best[name]}.values()))
    return rows
