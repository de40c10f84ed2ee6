"""Options of what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ...core.record_config import MAX_BYTES
from .memory import MemorySize
from .registry import known
from .settings import Settings
from .values import LIST, MEMORY, STRING


def _change(settings: Settings, **changes: Any) -> None:
    settings.change(record=replace(settings.base.record, **changes))


def record_to(
    settings: Settings, path: str, operators: Sequence[str], max_size: MemorySize | str | None
) -> None:
    """ConfigurationError for what is no path, name or size."""
    said = MemorySize(MAX_BYTES) if max_size is None else max_size
    size = said if isinstance(said, MemorySize) else MemorySize.parse(said)
    _change(settings, path=path, operators=tuple(operators), max_bytes=size.bytes_size)


RECORD: Final = (
    known(
        "strom.record.path",
        STRING,
        None,
        lambda settings, value: _change(settings, path=value),
        "a path or fsspec URL that all tasks reach: what operators get is kept there, for "
        "`strom replay`",
    ),
    known(
        "strom.record.operators",
        LIST,
        None,
        lambda settings, value: _change(settings, operators=tuple(value)),
        "those operators, by uid, name or id",
    ),
    known(
        "strom.record.max-size",
        MEMORY,
        MemorySize(MAX_BYTES),
        lambda settings, value: _change(settings, max_bytes=value.bytes_size),
        "of what one subtask gets between two checkpoints; more is not recorded",
    ),
)
