"""The fuzzer: a few seeds of it, and that it notices what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from strom.operators.aggregates.flat import Extreme
from strom.testing.fuzz.__main__ import main
from strom.testing.fuzz.cases import Table, Windows
from strom.testing.fuzz.drawing import draw_case
from strom.testing.fuzz.limits import LIMITS, known_limits
from strom.testing.fuzz.running import Disagreement, run_case


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_every_way_agrees(first: int) -> None:
    for seed in range(first, first + 10):
        run_case(draw_case(seed))


@pytest.mark.parametrize("seed", range(60, 64))
def test_jobs_agree(seed: int) -> None:
    run_case(draw_case(seed), jobs=True)


def test_a_seed_is_a_case_for_ever() -> None:
    for seed in range(20):
        one, other = draw_case(seed), draw_case(seed)
        assert one.describe() == other.describe()
        assert repr(one.records) == repr(other.records)


def test_limits_are_where_they_were() -> None:
    """A limit that moved is no limit any more: say so in `testing/fuzz/limits.py`."""
    assert len(list(known_limits())) == sum(map(len, LIMITS.values()))


def test_cases_are_of_many_kinds() -> None:
    cases = [draw_case(seed) for seed in range(300)]
    windows = [c.operation for c in cases if isinstance(c.operation, Windows)]
    assert len({type(w.assigner) for w in windows}) >= 7
    assert {w.what for w in windows} == {"aggregate", "extreme", "top_n"}
    tables = [c.operation for c in cases if isinstance(c.operation, Table)]
    assert {t.what for t in tables} == {"aggregate", "top_n", "deduplicate", "over", "rolling"}
    assert any(c.changelog for c in cases)
    assert len({type_ for c in cases for type_ in c.data.schema.types}) > 25


def test_a_wrong_result_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys get each other's extremes; the seed is printed and fails again."""

    def wrong(self, table, at=None):
        count = len(table) if at is None else len(at)
        return right(self, table, at).take(np.roll(np.arange(count), 1))

    right = Extreme.result
    monkeypatch.setattr(Extreme, "result", wrong)
    assert main(["--seeds", "60", "--jobs-every", "0", "--fail-fast"]) == 1
    output = capsys.readouterr().out
    seed = int(output.rpartition("failed: [")[2].rstrip("]\n"))
    assert f"seed {seed}: " in output
    with pytest.raises(Disagreement, match=f"seed {seed}: "):
        run_case(draw_case(seed))
