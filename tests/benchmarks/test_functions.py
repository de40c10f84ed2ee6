"""What `functions` measures: every case, by rows and on columns."""

from __future__ import annotations

import pytest
from strom.benchmarks import cli, functions
from strom.benchmarks.functions import BLOCK, CASES


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "apart", lambda call, *arguments: call(*arguments))
    words = ["functions", "--events", str(BLOCK), "--rounds", "1", "--json"]
    lines = list(cli.run(cli.parser().parse_args(words)))
    assert [line["case"] for line in lines] == list(CASES)
    assert all(line["rows_ns"] > 0 and line["columns_ns"] > 0 for line in lines)
    assert {line["events"] for line in lines} == {BLOCK}
    with pytest.raises(SystemExit, match="no case"):
        list(cli.run(cli.parser().parse_args(["functions", "--cases", "nothing"])))
