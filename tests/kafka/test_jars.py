"""Jars by their Maven coordinates: found once, kept, refused when they are no coordinates."""

from __future__ import annotations

from pathlib import Path

import pytest
from strom import ConfigurationError
from strom.connectors.spark import jars
from strom.testing.kafka import COORDINATES


def test_the_brokers_jars_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = jars.jars_of(COORDINATES)
    names = {path.name for path in found}
    assert "kafka_2.13-4.1.0.jar" in names
    assert "kafka-clients-4.1.0.jar" in names
    assert len(names) > 40

    def forbidden(*arguments: object) -> None:
        raise AssertionError("downloaded again")

    monkeypatch.setattr(jars, "_download", forbidden)
    assert jars.jars_of(COORDINATES) == found


@pytest.mark.parametrize("wrong", ["kafka", "a:b", "a:b:c:d", "a::1"])
def test_what_is_no_coordinate(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="no Maven coordinate"):
        jars.jars_of([wrong])


def test_where_they_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROM_JARS", str(tmp_path))
    assert jars.cache() == tmp_path
    monkeypatch.delenv("STROM_JARS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache() == tmp_path / "strom" / "jars"


def test_jars_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One sentence with Ivy's own words, and no half-filled folder left for the next call."""
    monkeypatch.setenv("STROM_JARS", str(tmp_path))
    with pytest.raises(ConfigurationError, match="no-such-artifact-of-anybody"):
        jars.jars_of(["org.apache.kafka:no-such-artifact-of-anybody:1.0"])
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("no-such")]
