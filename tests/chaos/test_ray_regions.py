"""Pipelines in one job on Ray, of which one has its process killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared_ray import ray_of
from strom.benchmarks.regions import measure_regions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def test_the_others_go_on_and_nothing_is_lost() -> None:
    """What the benchmark measures: the others keep their attempt and read nothing twice, and the
    files of all pipelines, also of the one that was killed, hold every record once."""
    line = measure_regions(2, 1000, quiet_s=0.5, kills_s=1.5, exchange=True)
    assert line["kills"] >= 1
    assert line["restarts"] == line["kills"]
    assert line["others_restarted"] == 0
    assert line["others_replayed"] == 0
    assert line["lost"] == 0
    assert line["doubled"] == 0
