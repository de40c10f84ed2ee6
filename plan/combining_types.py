"""Which types of columns local combining takes, as its operators find with their first batch.

What is combined are numbers: partial aggregates of anything else would be as many as the records.
Sums of floats depend on the order of their addends in the last digits. With several senders that
order is open anyway; with one it is not, and records keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from ..api.aggregate_kinds import kind_of
from ..api.specs.schemas import input_type, known_keys
from ..api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from ..core.arrays import storage
from ..core.keys import ColumnKey
from ..core.partials import PARTIAL_PREFIX
from ..engine.graph.implementation import Implementation, Kind
from .windows import slicing_of

PASSED_ON = "passed on uncombined: "
PASSES = "passes records on"
NUMBERS = "only numbers and times are combined ahead of the exchange"


def needs_order(spec: WindowSpec, senders: int) -> str | None:
    """Why the window needs its records in order, whatever their types; None if types tell."""
    if senders == 1 and isinstance(spec.function, BuiltinWindow):
        kinds = {one.kind for _, one in spec.function.aggregates}
        ordered = sorted(kind for kind in kinds if kind_of(kind).exact == "never")
        if ordered:
            return f"from a single sender, {', '.join(ordered)} depends on the order"
    return None


def combining(spec: WindowSpec, senders: int) -> Implementation:
    """How the local operator for this window runs in so many subtasks, as far as specs tell. It is
    there also where it passes all records on for their number alone: what is in flight behind it in
    an unaligned checkpoint is restored at any parallelism."""
    why_not = needs_order(spec, senders)
    if why_not is not None:
        return Implementation("batches", PASSES, why_not, slicing_of(spec.assigner))
    extreme = isinstance(spec.function, ExtremeWindow)
    which = _conditions(spec, senders)
    kind: Kind = "kernel or batches" if which else "kernel"
    remarks = [f"{PASSED_ON}Python objects, keys that hardly repeat"]
    if which:
        remarks.insert(
            0,
            f"the first batch decides: combined if {' and '.join(which)}; else records are passed "
            "on",
        )
    name = "leaves out records that hold no extreme"
    if not extreme:
        name = "partial aggregates by slice of time"
    return Implementation(kind, name, None, slicing_of(spec.assigner), tuple(remarks))


def foretold(
    made: Implementation, spec: WindowSpec, senders: int, columns: pa.Schema
) -> Implementation | None:
    """How it runs on records of these columns; None where only the first batch tells, and where
    the spec told."""
    if made.name == PASSES or _is_open(spec, columns):
        return None
    why_not = _uncombined(spec, senders, columns)
    if why_not is None:
        return replace(made, kind="kernel", remarks=(f"{PASSED_ON}keys that hardly repeat",))
    return replace(made, kind="batches", name=PASSES, why_not=why_not, remarks=())


def _conditions(spec: WindowSpec, senders: int) -> list[str]:
    """What has to hold for types so that records are combined; none where any will do."""
    if isinstance(spec.function, ExtremeWindow):
        return [f"{spec.function.field!r} holds numbers or times"]
    assert isinstance(spec.function, BuiltinWindow)
    aggregates = [one for _, one in spec.function.aggregates]
    names = spec.key.names if isinstance(spec.key, ColumnKey) else ()
    clashing = [name for name in names if name.startswith(PARTIAL_PREFIX)]
    kept = [one.describe() for one in aggregates if kind_of(one.kind).combines_numbers_only]
    found = [f"{text} is of numbers or times" for text in dict.fromkeys(kept)]
    if senders == 1 and any(kind_of(one.kind).exact != "always" for one in aggregates):
        found.append("nothing is of floats, whose sums depend on their order")
    found += [f"no column of partials is called {name!r}, too" for name in clashing]
    return found


def _uncombined(spec: WindowSpec, senders: int, columns: pa.Schema) -> str | None:
    """Why records of these columns are passed on; None if they are combined."""
    if isinstance(spec.function, ExtremeWindow):
        field = columns.field(spec.function.field)
        if storage(field.type) is None:
            return f"{field.name!r} holds values of type {field.type}: {NUMBERS}"
        return None
    assert isinstance(spec.function, BuiltinWindow)
    kinds = [
        input_type(columns, one.condition if one.expression is None else one.expression)
        for _, one in spec.function.aggregates
        if one.takes_input
    ]
    return uncombined(spec.function, kinds, senders)


def uncombined(
    function: BuiltinWindow, kinds: Sequence[pa.DataType | None], senders: int
) -> str | None:
    """Why aggregates of inputs of these types, None for what is not known, are not combined by so
    many subtasks; None if they are. What takes no input has no type there."""
    types = iter(kinds)
    floats = False
    for _, aggregate in function.aggregates:
        kind = next(types) if aggregate.takes_input else None
        if kind is None:
            continue
        if kind_of(aggregate.kind).combines_numbers_only and storage(kind) is None:
            return f"{aggregate.describe()} is of values of type {kind}: {NUMBERS}"
        floats = floats or pa.types.is_floating(kind)
    exact = {kind_of(one.kind).exact for _, one in function.aggregates}
    if senders > 1 or exact == {"always"}:
        return None
    if "never" in exact:
        return "from a single sender, results depend on the order of records"
    return "from a single sender, sums of floats depend on the order of records" if floats else None


def _is_open(spec: WindowSpec, columns: pa.Schema) -> bool:
    """Whether these columns do not tell: what is asked for is not there, or a key may be called as
    a column of partials is."""
    keys = known_keys(columns, spec.key) if spec.keyed else pa.schema([])
    if isinstance(spec.function, ExtremeWindow):
        return keys is None or spec.function.field not in columns.names
    assert isinstance(spec.function, BuiltinWindow)
    used = [one.expression for _, one in spec.function.aggregates if one.expression is not None]
    unknown = any(input_type(columns, expression) is None for expression in used)
    return keys is None or unknown or any(n.startswith(PARTIAL_PREFIX) for n in keys.names)
