"""Jobs that no dispatcher knows of, as their coordinators tell them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rest_kit import view_of_a_job
from strom.cluster import coordinators
from strom.cluster.coordinators import SILENT, Coordinators


def test_cancelled_jobs_are_remembered_while_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = ["a", "b"]
    actor = SimpleNamespace(cancel=SimpleNamespace(remote=lambda: None))
    views: dict[str, Any] = {"a": view_of_a_job("a")}
    monkeypatch.setattr(coordinators, "job_ids", lambda: list(there))
    monkeypatch.setattr(coordinators, "views_of", lambda ids, timeout: views)
    monkeypatch.setattr(coordinators, "placement_group_table", dict)
    monkeypatch.setattr(coordinators, "find_coordinator", lambda job_id: actor)
    monkeypatch.setattr(coordinators.ray, "get", lambda call, timeout: call)
    found = Coordinators()
    for job_id in there:
        found.cancel(job_id)
    assert [(one.job_id, one.cancelling, why) for one, why in found.jobs()] == [
        ("a", True, ""),
        ("b", False, SILENT),
    ]
    there.remove("b")
    found.jobs()
    assert found._cancelled == {"a"}
