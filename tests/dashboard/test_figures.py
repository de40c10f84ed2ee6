"""What the dashboard asks for besides Flink's paths: a job's figures in one answer."""

from __future__ import annotations

from typing import Any

import pytest
from rest_kit import SOURCE, SUMS, PlayedJobs, client_of, view_of_a_job
from strom.rest.shapes.figures import figures_of

JOB = "0123456789abcdef"


def test_figures_of_all_vertices_are_one_answer() -> None:
    with client_of(PlayedJobs()) as client:
        found = client.get(f"/v1/jobs/{JOB}/figures").json()
        assert client.get(f"/v1/jobs/{'0' * 16}/figures").status_code == 404
    source, sums = found["vertices"]
    assert (source["id"], sums["id"]) == (SOURCE, SUMS)
    assert found["now"] == 10_000
    assert (sums["read-records"], sums["busy"], sums["busy-max"]) == (30, 0.2, 0.4)
    assert (sums["backpressured"], sums["idle"]) == (0.2, pytest.approx(0.6))
    assert sums["watermark"] is None  # one subtask has none
    assert sums["skew"] == pytest.approx(5 / 15)
    assert found["memory"] == {"rss": 0, "peak": 2 << 20, "processes": 2}


def test_a_source_has_read_what_it_gives_and_a_sink_gives_what_it_takes() -> None:
    view: Any = view_of_a_job()
    source, *sinks = view["tasks"]
    source["metrics"] |= {"numRecordsIn": 0, "Source__numbers.numRecordsOut": 42}
    source["metrics"] |= {"Source__numbers.currentOutputWatermark": 5}
    for task in sinks:
        task["metrics"] |= {"numRecordsOut": 0, "sums.numRecordsIn": 21}
    first, last = figures_of(view)["vertices"]
    assert (first["read-records"], first["watermark"]) == (42, 5)
    assert last["write-records"] == 42


def test_operators_of_one_name_are_told_apart() -> None:
    view: Any = view_of_a_job()
    operator = view["vertices"][0]["operators"][0]
    view["vertices"][0]["operators"] = [operator, {**operator, "id": "other"}]
    view["tasks"][0]["metrics"][f"Source__numbers_({SOURCE}).numRecordsOut"] = 7
    assert figures_of(view)["vertices"][0]["read-records"] == 7


def test_a_job_that_has_not_begun_has_no_figures() -> None:
    view: Any = view_of_a_job()
    view["tasks"] = []
    found = figures_of(view)
    assert {one["busy"] for one in found["vertices"]} == {None}
    assert found["memory"]["processes"] == 0
