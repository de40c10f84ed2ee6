"""What a dispatcher finds around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from dispatcher_kit import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)
