"""Side outputs are named by tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OutputTag:
    """Names a side output. Two tags with one `tag_id` are the same side output."""

    tag_id: str
    type_info: Any = None

    def __post_init__(self) -> None:
        if not self.tag_id:
            raise ValueError("an OutputTag needs a non-empty tag_id")
