"""`machines`: a figure of each kind comes out."""

from __future__ import annotations

import pytest
from strom.benchmarks.machines import Way, _measured
from strom.testing.machines.network import missing

LACKING = missing()


@pytest.mark.skipif(LACKING is not None, reason=f"machines of its own: there is no {LACKING}")
@pytest.mark.parametrize(
    "way", [Way("late", 0.005, False), Way("encrypted", 0.0, True)], ids=lambda way: way.name
)
def test_a_line_is_measured(way: Way) -> None:
    line = _measured(way, 0.5, 3, {"floating_buffers": 4})
    assert line["mb_per_s"] > 0
    assert line["records_per_s"] == pytest.approx(line["mb_per_s"] * 1e6 / 24, rel=0.05)
    assert line["cpu_s_per_gb"] > 0
