"""`draw_case(seed)` gives the same case for ever, as long as nothing here changes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.row_kind import ROW_KIND
from .cases import Case, Table, Windows
from .draw_operations import (
    draw_arguments,
    draw_nested_aggregate,
    draw_table,
    draw_windows,
    expressible,
)
from .values import KINDS, LIST_KEYS, NESTED, RARE, Kind, draw_values, pick, to_array


def draw_case(seed: int) -> Case:
    rng = random.Random(seed)
    operation = draw_windows(rng) if rng.random() < 0.6 else draw_table(rng)
    keyed = not isinstance(operation, Windows) or operation.keyed
    data, key = _draw_data(rng, operation)
    case = Case(seed, data, key if keyed else (), operation, [])
    draw_arguments(rng, case)
    _draw_script(rng, case)
    case.filtered = rng.random() < 0.3 and not case.changelog
    case.by_expression = keyed and rng.random() < 0.15 and expressible(case)
    case.varied = rng.random() < 0.2
    case.tight = rng.random() < 0.4
    _draw_expiry(random.Random(f"expiry {seed}"), case)
    _draw_rare(random.Random(f"rare {seed}"), case)
    _draw_nested(random.Random(f"nested {seed}"), case)
    case.mixed = random.Random(f"mixed {seed}").random() < 0.25 and not case.changelog
    return _renamed(rng, case) if rng.random() < 0.25 else case


def _draw_expiry(rng: random.Random, case: Case) -> None:
    """Give some tables a time to live of event time. What an aggregate of a changelog comes to says
    nothing then: it may be asked to take back what it has forgotten."""
    operation = case.operation
    if not isinstance(operation, Table) or rng.random() < 0.6:
        return
    if operation.range_ms is not None:
        return
    if operation.what == "aggregate" and case.changelog:
        return
    case.operation = replace(operation, event_ttl=rng.choice([1, 5, 30, 100, 1000]))
    times, ahead = case.data.column("ts").to_pylist(), 2**62
    script: list[tuple[Any, ...]] = []
    for kind, *rest in reversed(case.script):
        if kind == "rows":
            ahead = min(ahead, *times[slice(*rest)])
        script.append((kind, min(rest[0], ahead - 1)) if kind == "mark" else (kind, *rest))
    case.script, mark = [], -(2**62)
    for step in reversed(script):
        if step[0] != "mark" or step[1] > mark:
            case.script.append(step)
            mark = step[1] if step[0] == "mark" else mark


def _draw_nested(rng: random.Random, case: Case) -> None:
    """Give some records a column of lists, structs or the like, and some tables such a key: those
    that have no rows of Python's, where a list is no key."""
    if rng.random() < 0.3:
        _add_column(rng, case, "p0", NESTED[rng.choice(list(NESTED))])
        one = draw_nested_aggregate(rng, case, "p0")
        if one is not None and rng.random() < 0.7:
            case.aggregates["rp"] = one
    of_columns = isinstance(case.operation, Table) and case.operation.what != "rolling"
    if of_columns and not case.by_expression and rng.random() < 0.2:
        _add_column(rng, case, "p1", NESTED[rng.choice(LIST_KEYS)])
        case.key = (*case.key, "p1")


def _draw_rare(rng: random.Random, case: Case) -> None:
    """Give some records a key more, of a type that is seldom one."""
    if case.key and not case.by_expression and rng.random() < 0.12:
        _add_column(rng, case, "r", RARE[rng.choice(list(RARE))])
        case.key = (*case.key, "r")


def _add_column(rng: random.Random, case: Case, name: str, kind: Kind) -> None:
    """In front of the kinds of rows; a record that is taken back has the same value."""
    numbers = case.data.column("n").to_pylist()
    drawn = draw_values(rng, kind, max(numbers) + 1, rng.choice([1, 2, 300]), 0.2)
    column = to_array([drawn[n] for n in numbers], kind.type)
    at = case.data.num_columns - case.changelog
    case.data = case.data.add_column(at, name, column)


_ODD_NAMES = (
    *("rows", "seen", "number", "value", "window", "key", "k0", "c0", "f0", "tick", "bar", "full"),
    *("a0_value", "a0_mark", "held", "field0", "e0", "index", "count", "namespace", "input0"),
    *("__all", "__rows", "__key_group", "watermark", "layout", "self", "a b", "é"),
)
"""Names that operators give columns of their own, and others that may be mistaken."""


def _renamed(rng: random.Random, case: Case) -> Case:
    """The case with odd names for columns; n, ts and flag keep theirs."""
    kept = ("n", "ts", "flag", ROW_KIND)
    old = [name for name in case.data.schema.names if name not in kept]
    to = dict(zip(old, rng.sample(_ODD_NAMES, len(old)), strict=True))
    columns = {
        to.get(n, n): c for n, c in zip(case.data.schema.names, case.data.columns, strict=True)
    }
    aggregates: dict[str, tuple[Aggregate, str | None]] = {}
    for name, (one, condition) in case.aggregates.items():
        by, expression = (to.get(str(e), e) for e in (one.by, one.expression))
        aggregates[name] = replace(one, by=by, expression=expression), condition
    return replace(
        case,
        data=pa.RecordBatch.from_pydict(columns),
        key=tuple(to[name] for name in case.key),
        aggregates=aggregates,
        field=to.get(case.field, case.field),
        order=tuple((to.get(name, name), descending) for name, descending in case.order),
    )


def _draw_data(
    rng: random.Random, operation: Windows | Table
) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    count = rng.choice([1, 5, 20, 20, 40, 40, 120, 400])
    kinds = {f"k{i}": pick(rng) for i in range(rng.choice([1, 1, 1, 2, 2, 3]))}
    key = tuple(kinds)
    kinds |= {f"v{i}": pick(rng) for i in range(2)}
    kinds["a0"] = pick(rng, lambda kind: kind.adds)
    nulls = rng.choice([0.0, 0.2, 0.2, 0.7])
    columns: dict[str, pa.Array] = {}
    for name, kind in kinds.items():
        values = draw_values(rng, KINDS[kind], count, rng.choice([1, 2, 3, 6, 300]), nulls)
        columns[name] = to_array(values, KINDS[kind].type)
    columns["flag"] = pa.array([rng.choice([True, False, None]) for _ in range(count)], pa.bool_())
    columns["n"] = pa.array(range(count), pa.int64())
    columns["ts"] = pa.array(_draw_times(rng, count), pa.int64())
    data = pa.RecordBatch.from_pydict(columns)
    retracts = isinstance(operation, Table) and operation.what in (
        "aggregate",
        "top_n",
        "deduplicate",
    )
    return (_with_retractions(rng, data) if retracts and rng.random() < 0.4 else data), key


def _draw_times(rng: random.Random, count: int) -> list[int]:
    base = rng.choice([0, -30, -1_000_000_007, 1_700_000_000_000])
    step, jitter = rng.choice([0, 1, 3, 15]), rng.choice([0, 2, 20, 60])
    return [base + i * step + rng.randint(-jitter, jitter) for i in range(count)]


def _with_retractions(rng: random.Random, data: pa.RecordBatch) -> pa.RecordBatch:
    """Some of the records taken away again, now and then, as a changelog."""
    rows: list[int] = []
    kinds: list[int] = []
    live: list[int] = []
    for at in range(data.num_rows):
        rows.append(at)
        kinds.append(rng.choice([0, 2]))
        live.append(at)
        while live and rng.random() < 0.35:
            rows.append(live.pop(rng.randrange(len(live))))
            kinds.append(rng.choice([1, 3]))
    columns = [
        pa.array([c[i].as_py() for i in rows], c.type)
        if not pa.types.is_dictionary(c.type)
        else to_array([c[i].as_py() for i in rows], c.type)
        for c in data.columns
    ]
    kind = pa.array(kinds, pa.int8())
    return pa.RecordBatch.from_arrays([*columns, kind], names=[*data.schema.names, ROW_KIND])


def _draw_script(rng: random.Random, case: Case) -> None:
    times = case.data.column("ts").to_pylist()
    size, slack = (
        rng.choice([1, 3, 10, 50, 1000]) * (1 + len(times) // 100),
        rng.choice([0, 0, 3, 10, 60]),
    )
    marks, cuts = rng.choice([0.1, 0.5, 0.9]), rng.choice([0.0, 0.1, 0.4])
    left = 8
    """Cuts at most."""
    script: list[tuple[Any, ...]] = []
    at, newest, mark = 0, -(2**62), -(2**62)
    while at < len(times):
        stop = min(len(times), at + rng.randint(1, size))
        script.append(("rows", at, stop))
        newest, at = max(newest, *times[at:stop]), stop
        if rng.random() < marks and newest - slack > mark:
            mark = newest - slack
            script.append(("mark", mark))
        if rng.random() < cuts and left:
            left -= 1
            script.append(("cut", rng.random() < 0.6))
    case.script = script
