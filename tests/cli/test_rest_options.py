"""What the options of commands that serve come to."""

from __future__ import annotations

from pathlib import Path

import pytest
from rest_kit import OPERATE, READ, TOKENS
from strom.cli.rest_options import serving_of
from strom.core.errors import ConfigurationError
from strom.rest.servers.api import Serving
from strom.rest.servers.tokens import tokens_in


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("STROM_REST_READ_TOKEN", "STROM_REST_OPERATE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_loopback_needs_no_tokens_and_takes_no_programs(home: Path) -> None:
    assert serving_of("127.0.0.1", None, None, None, None, None) == Serving()
    assert list(home.iterdir()) == []


def test_beyond_loopback_tokens_are_made(home: Path) -> None:
    found = serving_of("0.0.0.0", 80, None, None, ["strom.example"], None)
    tokens = home / ".strom" / "rest-tokens.json"
    programs = str(home / ".strom" / "programs")
    assert found == Serving("0.0.0.0", 80, str(tokens), ("strom.example",), programs)
    assert tokens.stat().st_mode & 0o777 == 0o600
    assert found.access().tokens == tokens_in(tokens)
    assert "strom.example" in found.access().hosts
    assert serving_of("0.0.0.0", 80, None, None, None, False).programs is None
    with pytest.raises(ConfigurationError, match="needs tokens"):
        serving_of("0.0.0.0", 80, False, None, None)


def test_tokens_of_the_environment_count(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "mine.json"
    first = serving_of("127.0.0.1", 0, True, file, None)
    assert first.access().tokens != TOKENS
    monkeypatch.setenv("STROM_REST_READ_TOKEN", READ)
    monkeypatch.setenv("STROM_REST_OPERATE_TOKEN", OPERATE)
    assert serving_of("127.0.0.1", 0, None, file, None).access().tokens == TOKENS
    assert tokens_in(file) == TOKENS
    assert serving_of("127.0.0.1", 0, False, file, None).tokens is None
