"""A client of a job of a session that is over, and whose coordinator has left."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from dispatcher_kit import RECORD, outcome
from strom.cluster.records import JobRecord, Phase
from strom.cluster.session_client import SessionJobClient
from strom.core.job_status import JobStatus

LAST, VIEW = outcome(JobStatus.FINISHED)


def test_its_last_view_is_what_the_session_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    record = JobRecord(**{**vars(RECORD), "phase": Phase.QUEUED})
    client: Any = SessionJobClient(record)
    client._outcome = LAST
    kept = SimpleNamespace(last_view=lambda job_id: VIEW if job_id == "a1" else None)
    monkeypatch.setattr(client, "_dispatcher", lambda: kept)
    assert client.view() == VIEW
    assert client.last_view(timedelta(seconds=5)) == VIEW
