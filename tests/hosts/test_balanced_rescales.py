"""A running job whose key groups are dealt to its subtasks by their load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import until
from skewed_job import GROUPS, SkewedJob
from strom import RescaleError
from strom.cli.plan import description_of
from strom.engine.graph.explain import to_text
from strom.rest.shapes.vertices import vertex_details


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., SkewedJob]]:
    """Makes jobs, of which none is left."""
    jobs: list[SkewedJob] = []

    def make(**settings: Any) -> SkewedJob:
        jobs.append(SkewedJob(tmp_path / "job", **settings))
        return jobs[-1]

    yield make
    for job in jobs:
        job.client.cancel()


def test_shares_become_even_and_the_output_is_exact(
    start: Callable[..., SkewedJob], tmp_path: Path
) -> None:
    """2, dealt by load -> 3, by load -> 2, as many groups for each."""
    job = start()
    before = job.deals(lambda share: share > 0.75)
    made = job.client.rescale(2, balance=True).result(60)
    assert (made.before, made.after) == ({}, {})
    assert made.checkpoint_id is not None
    (one,) = made.balance.values()
    assert one.before == pytest.approx(before, abs=0.1)
    assert one.after < 0.62
    assert one.limit == ""
    told = {name: asdict(one) for name, one in made.balance.items()}
    assert job.client.metrics()["last_rescale"]["balance"] == told
    view = job.client.view()
    (dealt,) = [vertex for vertex in view["vertices"] if "deal" in vertex]
    assert dealt["name"].startswith("sums")
    assert vertex_details(view, dealt)["deal"] == dealt["deal"]
    assert (len(dealt["deal"]), dealt["deal"][0]) == (2, 0)
    ranges = f"0..{dealt['deal'][1] - 1}, {dealt['deal'][1]}..{GROUPS - 1}"
    assert f"key groups, dealt by load: {ranges}" in to_text(description_of(view))
    assert job.deals(lambda share: share < 0.65) >= 0.5

    def again() -> Any:
        """Few records had been seen of the first deal; the next ones come to rest."""
        try:
            made = job.client.rescale({"sums": 2}, balance=True).result(60)
        except RescaleError as error:
            if "ask again once some have come" not in str(error):
                raise
            return None
        return made if made.checkpoint_id is None else None

    stays = until(again, "nothing is to be won")
    assert next(iter(stays.balance.values())).before < 0.65

    path = job.client.trigger_savepoint(str(tmp_path / "savepoints")).result(60)
    checked = strom.state.open(path).verify()
    assert checked.problems == []

    wider = job.client.rescale(3, balance=True).result(60)
    assert set(wider.after.values()) == {3}
    assert next(iter(wider.balance.values())).after < 0.5
    even = job.client.rescale(2).result(60)
    assert (set(even.after.values()), even.balance) == ({2}, {})
    assert job.client.metrics()["last_rescale"]["balance"] == {}
    assert all("deal" not in vertex for vertex in job.client.view()["vertices"])
    assert job.deals(lambda share: share > 0.75)
    result = job.finish()
    assert result.metrics["rescales"] >= 3
    assert result.metrics["restarts"] == 0


def test_where_no_load_is_known_nothing_is_dealt(start: Callable[..., SkewedJob]) -> None:
    """With one subtask nobody chooses by key, and so nobody looks."""
    job = start()
    job.deals(lambda share: share > 0.75)
    job.client.rescale(1).result(60)
    with pytest.raises(RescaleError, match=r"no load of the key groups of 'sums.*ask again"):
        job.client.rescale(2, balance=True).result(60)
    until(lambda: job.client.metrics()["state"] == "RUNNING", "the job, as it was")
    job.finish()
