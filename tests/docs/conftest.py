"""A program's surroundings for the code of one document."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """A fresh main module in an empty working directory: functions and classes defined in it are
    shipped to tasks as those of a script are. A Ray that the program started ends with it."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)
    before = _ray_runs()
    yield module
    if _ray_runs() and not before:
        sys.modules["ray"].shutdown()


def _ray_runs() -> bool:
    ray: Any = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that libpq finds by its environment."""
    from strom.testing.postgres import PostgresServer

    with PostgresServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield
