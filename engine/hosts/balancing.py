"""A rescale that deals key groups by load: of what tasks have told of the keys they send, ranges
whose busiest subtask has as little as can be (`state.key_group_deals`).

Vertices that a forward edge connects share their key groups (`rescaling.together`), so one deal is
made for all of them, of what comes to them by key together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import GraphError
from ...core.ids import Deal, TaskId, VertexId
from ...core.texts import encodable
from ...state.key_group_deals import Balance, best_deal, loads_of, ranges_of
from ..graph.model import JobGraph, JobVertex, KeyGroups
from ..graph.rescaling import chosen, dealt, moved, together
from .key_figures import GroupLoads, group_loads

Reports = Mapping[TaskId, Mapping[str, Any]]

ASK_AGAIN = (
    "it is measured where records are sent by key to two subtasks or more, and told with the "
    "tasks' figures: ask again once some have come"
)


@dataclass(frozen=True)
class Balanced:
    """Go on at these parallelisms, as of `rescaling.moved`, with key groups dealt by load."""

    wanted: int | Mapping[str, int]


def balanced(
    planned: JobGraph, now: JobGraph, wanted: Balanced, reports: Reports
) -> tuple[JobGraph, dict[str, Balance]]:
    """The job that runs as `now`, as it is wanted; and of each operator that is dealt anew, by the
    name of its chain, what its busiest subtask gets. Where no load is known key groups are dealt
    evenly. GraphError as of `moved`; where none is known at all; and for an operator that was named
    of which none is known."""
    widths, made = chosen(planned, wanted.wanted), moved(planned, now, wanted.wanted)
    named = not isinstance(wanted.wanted, int)
    deals, found = dict[VertexId, Deal](), dict[str, Balance]()
    keyed = {edge.target for edge in now.edges if isinstance(edge.partitioner, KeyGroups)}
    mute: list[str] = []
    for group in together(now):
        heads = [vertex for vertex in group if vertex.id in keyed]
        if group[0].id not in widths or not heads:
            continue
        known = group_loads(reports, now, group)
        if known is None:
            mute.append(f"'{heads[0].name}'")
            continue
        parallelism = widths[group[0].id]
        deal, balance = _best(known, group[0], parallelism)
        found[encodable(heads[0].name)] = balance
        deals.update((vertex.id, deal) for vertex in group)
    if not found and not mute:
        what = "the operators that were named" if named else f"job '{now.name}'"
        raise GraphError(f"no records come to {what} by key: there are no key groups to balance")
    if mute and (named or not found):
        raise GraphError(f"no load of the key groups of {', '.join(mute)} is known: {ASK_AGAIN}")
    return dealt(planned, made, deals), found


def _best(known: GroupLoads, vertex: JobVertex, parallelism: int) -> tuple[Deal, Balance]:
    groups, before, now = vertex.max_parallelism, vertex.parallelism, vertex.deal
    loads, total = _of_groups(known, groups), sum(known.loads) * known.width
    deal = best_deal(loads, now, before, parallelism)
    least, most = [
        max(loads_of(loads, ranges_of(*one, groups))) / total
        for one in ((deal, parallelism), (now, before))
    ]
    return deal, Balance(most, least, _limit(known, loads, least, parallelism))


def _of_groups(known: GroupLoads, groups: int) -> list[int]:
    """Of each key group, `width` times as much: that of a run is spread over its groups, in whole
    numbers, so that nothing is lost."""
    loads: list[int] = []
    for at, load in enumerate(known.loads):
        size = min(known.width, groups - at * known.width)
        each, more = divmod(load * known.width, size)
        loads += [each + (place < more) for place in range(size)]
    return loads


def _limit(known: GroupLoads, loads: Sequence[int], least: float, parallelism: int) -> str:
    """That one key group is what makes the busiest subtask so busy."""
    heaviest = max(range(len(loads)), key=loads.__getitem__)
    share = loads[heaviest] / (sum(known.loads) * known.width)
    if known.width > 1 or share < least or share * parallelism <= 1.0:
        return ""
    said = f"key group {heaviest} alone has {share:.0%} of the records"
    hot = [(key, part) for key, part, group in known.keys if group == heaviest]
    if hot:
        said += f", of which the key {hot[0][0]} has {hot[0][1]:.0%}"
    return f"{said}: no deal of key groups makes that less"
