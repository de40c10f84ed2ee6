"""What coordinators on a program's own Ray have written down is gone when the program is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from strom.engine.hosts import attachment
from strom.engine.hosts.job_record import Begun, JobRecord


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[JobRecord]:
    monkeypatch.setattr(attachment, "_records", [])
    found = [JobRecord(str(tmp_path), f"a{n}") for n in range(3)]
    for one in found:
        one.begin(Begun(b"graph"))
    return found


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".coordinators/*"))


def test_they_go_with_the_program_that_submitted_the_jobs(
    records: list[JobRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachment.goes_with_program(records[0])
    attachment.goes_with_program(records[1])
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        attachment.goes_with_program(records[2])
    attachment.remove_records()
    assert there(tmp_path) == ["a2"]
    attachment.remove_records()


def test_a_storage_that_takes_long_does_not_hold_up_the_end(
    records: list[JobRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which the newest are gone."""
    monkeypatch.setattr(attachment, "REMOVING_S", 0.1)
    remove, slow = JobRecord.remove, threading.Event()

    def slowly(record: JobRecord) -> None:
        remove(record)
        slow.wait(0.2)

    monkeypatch.setattr(JobRecord, "remove", slowly)
    for one in records:
        attachment.goes_with_program(one)
    attachment.remove_records()
    assert there(tmp_path) == ["a0", "a1"]


def test_jobs_are_cancelled_before() -> None:
    """What was registered last is called first."""
    text = """
        import atexit
        seen = []
        atexit.register = lambda function, *_, **__: (seen.append(function), function)[1]
        import strom.engine.hosts.attachment
        names = [getattr(function, "__name__", "") for function in seen]
        print(*[name for name in names if name in ("remove_records", "cancel_attached")])
    """
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["remove_records", "cancel_attached"]
