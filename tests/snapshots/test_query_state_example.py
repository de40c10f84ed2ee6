"""`python examples/query_state.py`: a job's state is queried, corrected and gone on from."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import strom
from strom.state.keyed_state import KeyedStates

EXAMPLE = Path(strom.__file__).parent / "examples" / "query_state.py"


def test_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second program is another one, with other key groups and subtasks and on another
    backend."""
    made: set[tuple[str, int]] = set()
    make = KeyedStates.make

    def watched(self: KeyedStates, groups: Any, max_parallelism: int, *rest: Any) -> Any:
        made.add((self._config.backend, max_parallelism))
        return make(self, groups, max_parallelism, *rest)

    monkeypatch.setattr(KeyedStates, "make", watched)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    assert made == {("memory", 128), ("rocksdb", 512)}
    asked = [line for line in shown.splitlines() if line.startswith("  {'carrier'")]
    assert len(asked) == 5
    minutes = [int(line.partition("'minutes': ")[2].partition(",")[0]) for line in asked]
    assert minutes == sorted(minutes, reverse=True)
    assert "delays.total: 1 changed, 0 removed" in shown
    assert "aircraft.last: 0 changed, 40 removed" in shown
    assert "rows, fine" in shown


def test_what_is_not_corrected_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = runpy.run_path(str(EXAMPLE))
    values = program["main"].__globals__
    edit = values["corrected"]

    def wrong(savepoint: str, folder: Path) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(values, "CORRECTION", -999)
            path: str = edit(savepoint, folder)
        return path

    monkeypatch.setitem(values, "corrected", wrong)
    assert program["main"]() == 1
    assert "as it must be" not in capsys.readouterr().out
