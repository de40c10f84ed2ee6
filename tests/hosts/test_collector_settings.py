"""A job in the user's process leaves the garbage collector as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from strom.engine.hosts.lean import GC_THRESHOLDS, SeldomCollecting


@pytest.fixture
def collector_settings() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_collector_is_as_before_once_the_last_job_is_over(collector_settings: None) -> None:
    gc.set_threshold(500, 7, 8)
    seldom = SeldomCollecting()
    with seldom:
        with seldom:
            assert gc.get_threshold() == GC_THRESHOLDS
        assert gc.get_threshold() == GC_THRESHOLDS
    assert gc.get_threshold() == (500, 7, 8)


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 10, 10)])
def test_what_the_user_set_the_collector_to_stays(
    collector_settings: None, own: tuple[int, int, int]
) -> None:
    gc.set_threshold(*own)
    with SeldomCollecting():
        assert gc.get_threshold() == own
    with SeldomCollecting():
        gc.set_threshold(600, 10, 10)
    assert gc.get_threshold() == (600, 10, 10)
