"""What nodes of a Ray cluster have free, and what a job's own slots have of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ray

# Public (a DeveloperAPI), but for its module; `ray.available_resources` adds up what it says.
from ray._private.state import available_resources_per_node

from ..coordinator.fitting import Nodes
from ..graph.slots import Bundle


def free_on_nodes() -> dict[str, dict[str, float]]:
    """By Ray's id, of nodes that live; one call."""
    found: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    return {node: dict(free) for node, free in found.items()}


def single_slots(prefix: str) -> dict[str, tuple[str, Bundle]]:
    """Placement groups of one slot whose names begin so and that have their place: on which node,
    and what they take; by name. One call."""
    table: Mapping[str, Any] = ray.util.placement_group_table()
    return {
        group["name"]: (group["bundles_to_node_id"][0], group["bundles"][0])
        for group in table.values()
        if group["name"].startswith(prefix) and group["state"] == "CREATED"
    }


@dataclass(frozen=True)
class OwnRoom:
    """What a job could have. `nodes`: free, or in its slots; `mine`: in its slots alone;
    `there`: the names of these."""

    nodes: Nodes
    mine: Nodes
    there: frozenset[str]


def own_room(prefix: str, down: Collection[str]) -> OwnRoom:
    """Of a job whose slots are `single_slots`, on nodes that are not `down`."""
    nodes = {node: free for node, free in free_on_nodes().items() if node not in down}
    slots = {name: one for name, one in single_slots(prefix).items() if one[0] in nodes}
    mine: dict[str, dict[str, float]] = {node: {} for node in nodes}
    for node, bundle in slots.values():
        for held in (mine[node], nodes[node]):
            for name, amount in bundle.items():
                held[name] = held.get(name, 0.0) + amount
    return OwnRoom([*nodes.values()], [*mine.values()], frozenset(slots))
