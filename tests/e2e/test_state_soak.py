"""A small `make soak-state`."""

from __future__ import annotations

from pathlib import Path

import pytest
from state_soak import ROW_BYTES, Plan, expected, rss_limit, soak


@pytest.mark.slow
def test_state_of_many_times_its_memory_survives_being_killed(tmp_path: Path) -> None:
    """24 MB under 3 MB. All of it is read and written again after the kill, from the checkpoint;
    the database of the killed process is removed."""
    keys = (24 << 20) // ROW_BYTES
    plan = Plan(keys, 2, 3 << 20, str(tmp_path), parallelism=2, interval_s=1.0)
    measured = soak(plan, kills=1, limit_s=300)
    assert measured.found == expected(plan)
    assert (measured.killed, measured.left) == (1, [])
    assert measured.rss_mb <= rss_limit(plan)
