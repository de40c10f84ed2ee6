"""Records of a key, cut where it is begun anew since it has expired, in plain Python."""

from __future__ import annotations

from .cases import Case, Table
from .folds import Record, in_order


def lives_of(case: Case, operation: Table, group: list[Record], ttl: int) -> list[list[Record]]:
    """`group`: records of a key in order of arrival, none of them late. Every record makes its key
    live on, but for tables of records that only come: then only those that are taken in do."""
    if operation.what == "over" and not operation.arrival:
        group = sorted(group, key=lambda record: int(record["ts"]))
    chosen = operation.what in ("top_n", "deduplicate") and not case.changelog
    lives: list[list[Record]] = []
    stamp, shown = 0, list[Record]()
    for record in group:
        time = record["ts"]
        if not lives or stamp + ttl <= time:
            lives.append([])
            stamp, shown = time, []
        if chosen:
            shown = _shown(case, operation, [*shown, record])
        if not chosen or any(one is record for one in shown):
            stamp = max(stamp, time)
        lives[-1].append(record)
    return lives


def _shown(case: Case, operation: Table, records: list[Record]) -> list[Record]:
    """The records that are kept of these, in an order in which others may be added."""
    first = operation.what == "top_n" or operation.keep == "first"
    if not case.order:
        return records[:1] if first else records[-1:]
    if first:
        return in_order(records, case.order)[: case.n if operation.what == "top_n" else 1]
    return in_order(records[::-1], [(name, not down) for name, down in case.order])[:1]
