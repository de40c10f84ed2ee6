"""The groups of slots that a session has named, as Ray knows them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import get_placement_group

from ..engine.hosts.slots import give_back


def slots_there(prefix: str) -> list[str]:
    """The names of those that there are and that begin so, whoever has them."""
    table: dict[str, Any] = ray.util.placement_group_table()
    return [
        one["name"]
        for one in table.values()
        if one["name"].startswith(prefix) and one["state"] != "REMOVED"
    ]


def release(group: str) -> None:
    """Remove them; nothing, if they are not there, or not yet: who looks what is there finds them
    later."""
    with suppress(ValueError, RayError):
        give_back(get_placement_group(group))
