"""The server that tests and demos start."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from strom.testing.postgres import PostgresServer

pytestmark = pytest.mark.postgres


def test_a_folder_for_temporary_files_that_nobody_else_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `mktemp -d` makes it: as root the server runs as another user."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    with PostgresServer() as server:
        assert server.run("SELECT 1") == [(1,)]
    assert not list(private.iterdir())
