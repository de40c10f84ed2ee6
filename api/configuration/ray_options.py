"""Options of what a job asks of Ray."""

from __future__ import annotations

import json
from typing import Any, Final

from ...core.errors import ConfigurationError
from .memory import MemorySize
from .registry import known
from .settings import Settings
from .values import MAP, MEMORY, STRING, read_float


def _set_memory(settings: Settings, value: MemorySize) -> None:
    settings.change(slot_memory=value.bytes_size)


def _set_resources(settings: Settings, value: dict[str, str]) -> None:
    amounts = {name: read_float(amount) for name, amount in value.items()}
    settings.change(slot_others=amounts)


def _set_runtime_env(settings: Settings, value: str) -> None:
    try:
        found: Any = json.loads(value)
    except ValueError as error:
        raise ConfigurationError(f"{value[:200]!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{value[:200]!r} is no JSON object")
    settings.change(runtime_env=found)


RAY_OPTIONS: Final = (
    known(
        "strom.slot.memory",
        MEMORY,
        MemorySize(0),
        _set_memory,
        "what a slot sets aside of Ray's `memory`, unless its slot sharing group says",
    ),
    known(
        "strom.slot.resources",
        MAP,
        {},
        _set_resources,
        "what else a slot takes then, by Ray's names: `GPU:1,accelerator:0.5`; not `CPU` and "
        "`memory`, which have options of their own, nor what Ray keeps for itself "
        "(`object_store_memory`, `bundle`, `node:...`)",
    ),
    known(
        "strom.ray.runtime-env",
        STRING,
        None,
        _set_runtime_env,
        "what Ray's runtime environments give to the processes of a job besides, as JSON: "
        "`env_vars`, `pip`",
    ),
)
