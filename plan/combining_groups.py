"""Which running aggregates are combined ahead of the exchange, as far as specs and types tell.

    source -> filter ==HASH(k)==> aggregate       becomes
    source -> filter -> LocalCombine ==HASH(k)==> aggregate

Several senders then share the work on each record, also where all records have one key. A single
one passes records on: the operator is there all the same, for what is in flight behind it in an
unaligned checkpoint is restored at any parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ..api.aggregate_kinds import kind_of
from ..api.aggregates import Aggregate
from ..api.specs.records import OperatorSpec
from ..api.specs.schemas import input_type, known_keys
from ..api.specs.tables import GroupAggregateSpec
from ..core.arrays import storage
from ..core.partials import PARTIAL_PREFIX
from ..engine.graph.implementation import Implementation
from .combining_types import NUMBERS, PASSED_ON, PASSES

DISTINCT = "count_distinct"
"""What is combined though it is no number: its values are sent once."""

REMARK = f"{PASSED_ON}Python objects, changelogs, keys and values that hardly repeat"


@dataclass(frozen=True)
class CombineGroupsSpec(OperatorSpec):
    """Partial aggregates, ahead of the exchange, for the operator of `groups`."""

    groups: GroupAggregateSpec


ALONE = "a single sender would do the work in place of its receivers"
"""Why it does not combine."""

_PASSES = Implementation("batches", PASSES, why_not=ALONE)


def groups_need_records(spec: GroupAggregateSpec) -> str | None:
    """Why the operator needs each record; None if partial aggregates will do."""
    if spec.ttl is not None:
        return "with a time to live, each record's time counts"
    kinds = {one.kind for _, one in spec.aggregates if one.kind != DISTINCT}
    others = sorted(kind for kind in kinds if not kind_of(kind).combines)
    if others:
        return f"{', '.join(others)} cannot be told from partial aggregates"
    return None


def combining_groups(spec: GroupAggregateSpec, senders: int) -> Implementation:
    """How the local operator runs in so many subtasks, as far as the spec tells."""
    if senders == 1:
        return _PASSES
    name = "partial aggregates by batch"
    which = [f"{text} is of {what}" for text, what in _wanted(spec)]
    if not which:
        return Implementation("kernel", name, remarks=(REMARK,))
    decides = (
        f"the first batch decides: combined if {' and '.join(which)}; else records are passed on"
    )
    return Implementation("kernel or batches", name, remarks=(decides, REMARK))


def foretold_groups(
    made: Implementation, spec: GroupAggregateSpec, columns: pa.Schema
) -> Implementation | None:
    """How it runs on records of these columns; None where only the first batch tells."""
    if made == _PASSES:
        return None
    keys = known_keys(columns, spec.key)
    aggregates = [one for _, one in spec.aggregates]
    kinds = [
        input_type(columns, one.condition if one.expression is None else one.expression)
        for one in aggregates
        if one.takes_input
    ]
    clashing = keys is not None and any(name.startswith(PARTIAL_PREFIX) for name in keys.names)
    if keys is None or clashing or None in kinds:
        return None
    why_not = uncombined_groups(aggregates, kinds)
    if why_not is None:
        return replace(made, kind="kernel", remarks=(REMARK,))
    return replace(made, kind="batches", name=PASSES, why_not=why_not, remarks=())


def uncombined_groups(
    aggregates: Sequence[Aggregate], kinds: Sequence[pa.DataType | None]
) -> str | None:
    """Why aggregates of inputs of these types are not combined; None if they are. What takes no
    input has no type there."""
    types = iter(kinds)
    for aggregate in aggregates:
        kind = next(types) if aggregate.takes_input else None
        if kind is None:
            continue
        if aggregate.kind == DISTINCT:
            if not _plain(kind):
                return (
                    f"{aggregate.describe()} is of values of type {kind}, which are not sent apart"
                )
        elif kind_of(aggregate.kind).combines_numbers_only and storage(kind) is None:
            return f"{aggregate.describe()} is of values of type {kind}: {NUMBERS}"
    return None


def _plain(kind: pa.DataType) -> bool:
    """Whether values are numbers, times, text or bytes."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return storage(kind) is not None or text or pa.types.is_binary(kind)


def _wanted(spec: GroupAggregateSpec) -> list[tuple[str, str]]:
    """What has to be of which types so that records are combined."""
    found = {}
    for _, one in spec.aggregates:
        if one.kind == DISTINCT:
            found[one.describe()] = "numbers, times, text or bytes"
        elif kind_of(one.kind).combines_numbers_only:
            found[one.describe()] = "numbers or times"
    return list(found.items())
