"""Which operators' inputs a job records, and where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from .checks import check_count, check_kind
from .errors import ConfigurationError

MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class RecordConfig:
    """`path`: an fsspec URL or path that all tasks reach; None: nothing is recorded. `operators`:
    by uid, name or id. `max_bytes`: of the inputs of one subtask since the last checkpoint; what
    runs over it is not recorded any more until the next one."""

    path: str | None = None
    operators: tuple[str, ...] = ()
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        check_kind("record path", self.path, str, type(None))
        check_kind("recorded operators", self.operators, tuple)
        for one in self.operators:
            check_kind("recorded operator", one, str)
        check_count("record max_bytes", self.max_bytes, 1)
        if self.path == "":
            raise ConfigurationError("record path must be a URL or path, is empty")
        if self.path is not None and "://" not in self.path:
            object.__setattr__(self, "path", os.path.abspath(self.path))

    def chooses(self, uid: str | None, name: str, operator_id: str) -> bool:
        """Whether an operator is recorded."""
        if self.path is None:
            return False
        return any(one in (uid, name, operator_id) for one in self.operators)
