"""`async`: a line per order."""

from __future__ import annotations

import json

import pytest
from strom.benchmarks import cli


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["async", "--events", "3000", "--capacity", "500", "--host", "local", "--json"]
    monkeypatch.setattr("sys.argv", ["benchmarks", *options])
    cli.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["async_ordered", "async_unordered"]
    for line in lines:
        assert line["events"] == line["rows_out"] == 3000
        assert (line["capacity"], line["call_ms"], line["parallelism"]) == (500, 10.0, 2)
        assert line["seconds"] >= 0.06, "500 at once take 10 ms"
