"""What `strom dashboard` hands to a browser."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from chaos_kit import until
from strom.cli import dashboard as module

URL = "http://127.0.0.1:8081/#token=hush&/jobs"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".strom"


def test_the_file_with_the_token_is_there_for_a_moment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browser(address: str) -> bool:
        (path,) = home.iterdir()
        assert address == path.as_uri()
        assert path.stat().st_mode & 0o777 == 0o600
        opened.append(path.read_text())
        return True

    home.mkdir()
    left = home / "dashboard.html"
    left.write_text("token")
    os.utime(left, (time.time() - 2 * module.LEADING_S,) * 2)
    monkeypatch.setattr(module, "LEADING_S", 1.0)
    monkeypatch.setattr(module.webbrowser, "open", browser)
    assert module._open(URL)
    assert "token=hush" in opened[0]
    until(lambda: list(home.iterdir()) == [], "the end of the file", 60.0)
    assert module._removing.pop().wait(60) == 0


def test_without_a_browser_no_file_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEADING_S", 0.0)
    monkeypatch.setattr(module.webbrowser, "open", lambda address: False)
    assert not module._open(URL)
    assert list(home.iterdir()) == []
    module._removing.pop().wait(60)


def test_an_address_without_a_token_needs_no_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(module.webbrowser, "open", lambda address: not opened.append(address))
    assert module._open("http://127.0.0.1:8081/#/jobs")
    assert opened == ["http://127.0.0.1:8081/#/jobs"]
    assert not home.exists()
