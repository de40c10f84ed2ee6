"""Which parallelism has room in a cluster. Pure.

A slot is on one node. Where all slots are of one kind, what fits is counted exactly; of several
kinds the greatest are dealt out first, node by node, which may miss a way to have a few more, and
never finds one that there is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..graph.model import JobGraph
from ..graph.rescaling import limited_widths, parallelisms_of
from ..graph.slots import Bundle, bundle_of

Nodes = Sequence[Mapping[str, float]]
"""What each node has free, by Ray's names."""

Slots = Sequence[tuple[Bundle, int]]
"""What slots of each kind take, and how many there are to be."""

_ROUNDING = 1e-6


def fits(slots: Slots, nodes: Nodes) -> bool:
    """Whether all these can be had at once."""
    left = [dict(node) for node in nodes]
    for bundle, number in sorted(slots, key=lambda one: _share(one[0], nodes), reverse=True):
        for node in left:
            number -= _taken(bundle, number, node)
        if number:
            return False
    return True


def greatest(slots_at: Callable[[int], Slots], least: int, most: int, nodes: Nodes) -> int | None:
    """The greatest parallelism from `least` to `most` whose slots can be had; None: not even those
    of `least`."""
    return next((p for p in range(most, least - 1, -1) if fits(slots_at(p), nodes)), None)


def slots_at(planned: JobGraph, job: JobGraph, most: int, has: JobGraph | None = None) -> Slots:
    """What `rescaling.limited` of these takes beside what `has` takes, which the job has."""
    wanted = _numbers(limited_widths(planned, job, most), job)
    there = {} if has is None else _numbers(parallelisms_of(has), has)
    return [
        (bundle_of(job, group), max(0, number - there.get(group, 0)))
        for group, number in wanted.items()
    ]


def _numbers(widths: Mapping[str, int], job: JobGraph) -> dict[str, int]:
    """How many slots each sharing group has."""
    numbers: dict[str, int] = {}
    for vertex in job.vertices:
        group = vertex.slot_sharing_group
        numbers[group] = max(numbers.get(group, 0), widths[str(vertex.id)])
    return numbers


def _share(bundle: Bundle, nodes: Nodes) -> float:
    """How great a part of all that is free such a slot takes."""
    totals = {name: sum(node.get(name, 0.0) for node in nodes) for name in bundle}
    parts = [amount / totals[name] if totals[name] else 1.0 for name, amount in bundle.items()]
    return max(parts, default=0.0)


def _taken(bundle: Bundle, number: int, node: dict[str, float]) -> int:
    """How many of them this node takes, which has less free then."""
    room = [node.get(name, 0.0) / amount for name, amount in bundle.items()]
    taken = min(number, int(min(room, default=float(number)) + _ROUNDING))
    for name, amount in bundle.items():
        node[name] = node.get(name, 0.0) - taken * amount
    return taken
