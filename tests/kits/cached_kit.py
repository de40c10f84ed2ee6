"""What the tests of cached streams share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from strom import (
    JobConfig,
    StreamExecutionEnvironment,
)


class Calls:
    """Counts calls over all copies of a function, in a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "calls"
        self._file.write_text("")

    def counting(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        path = str(self._file)

        def called(value: Any) -> Any:
            with open(path, "a") as file:
                file.write("x")
            return function(value)

        return called

    @property
    def number(self) -> int:
        return len(self._file.read_text())


def environment(parallelism: int = 2, **options: Any) -> Any:
    config = JobConfig(parallelism=parallelism, batch_size=7, **options)
    return StreamExecutionEnvironment.get_execution_environment(config)


def doubled(value: Any) -> Any:
    return value * 2


def collected(stream: Any) -> list[Any]:
    return sorted(stream.execute_and_collect())


def kept_bytes(env: Any) -> int:
    store = env._caches._store
    return 0 if store is None else store.parts.held_bytes()
