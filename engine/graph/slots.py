"""The slots that a job takes, as plain data: which task is in which, and what each needs of a
cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...core.config import SlotResources
from ...core.errors import ConfigurationError
from ...core.ids import TaskId
from .model import JobGraph

Bundle = dict[str, float]
"""What one slot takes, by Ray's names."""

SlotKey = tuple[str, int]
"""A slot sharing group, and the number of a slot in it: that of the subtasks which it holds."""


def slots_of(job: JobGraph) -> dict[TaskId, int]:
    """The slot of each task. A slot holds one subtask of each vertex of one slot sharing group."""
    widths: dict[str, int] = {}
    for vertex in job.vertices:
        group = vertex.slot_sharing_group
        widths[group] = max(widths.get(group, 0), vertex.parallelism)
    start: dict[str, int] = {}
    total = 0
    for group, width in widths.items():
        start[group] = total
        total += width
    return {
        TaskId(v.id, i): start[v.slot_sharing_group] + i
        for v in job.vertices
        for i in range(v.parallelism)
    }


def keys_of(job: JobGraph) -> dict[TaskId, SlotKey]:
    """The slot of each task, whatever slots the job had before."""
    return {
        TaskId(v.id, i): (v.slot_sharing_group, i)
        for v in job.vertices
        for i in range(v.parallelism)
    }


def bundle_of(job: JobGraph, group: str) -> Bundle:
    """What a slot of this sharing group takes."""
    config = job.config
    plain = SlotResources(None, config.slot_memory, config.slot_others)
    bundle = config.slot_resources.get(group, plain).bundle(config.slot_cpus)
    if not bundle:
        raise ConfigurationError(
            f"a slot of the slot sharing group '{group}' takes nothing: give it a part of a CPU, "
            "memory or another resource (strom.slot.cpus, strom.slot.memory, strom.slot.resources)"
        )
    return bundle


def bundles_of(job: JobGraph) -> list[Bundle]:
    """What each slot takes, in their order."""
    groups = {v.id: v.slot_sharing_group for v in job.vertices}
    group_of = {slot: groups[task.vertex] for task, slot in slots_of(job).items()}
    return [bundle_of(job, group_of[slot]) for slot in range(len(group_of))]


def total_of(bundles: Sequence[Bundle]) -> dict[str, float]:
    """What slots take together, by Ray's names."""
    total: Counter[str] = Counter()
    for bundle in bundles:
        total.update(bundle)
    return dict(total)


def lacking(
    bundles: Sequence[Mapping[str, float]],
    have: Mapping[str, float],
    free: Mapping[str, float],
    own: Mapping[str, float] | None = None,
) -> str:
    """What slots that cannot be had need, and what the cluster has of that. `own`: what of it the
    job has already, if it has any of these slots."""
    kinds = Counter(tuple(sorted(bundle.items())) for bundle in bundles)
    needs = " and ".join(f"{n} slots of {_amounts(dict(kind))}" for kind, n in kinds.items())
    names = sorted({name for bundle in bundles for name in bundle})
    there = {name: have.get(name, 0) for name in names}
    left = {name: free.get(name, 0) for name in names}
    had = {name: own[name] for name in names if name in own} if own else {}
    beside = f", and {_amounts(had)} are in those of them that it has" if had else ""
    return (
        f"the job needs {needs}, the cluster has {_amounts(there)} of which {_amounts(left)} are "
        f"free{beside}"
    )


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(resources.items()))
