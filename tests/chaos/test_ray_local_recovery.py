"""Jobs on Ray whose processes are killed, and start again from copies on their machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, pairs, until, within
from leashed_source import Leashed
from shared_ray import ray_of
from strom.core.state_config import StateConfig
from strom.engine.hosts.local_folder import copies_roots
from strom.testing.backends import spilling

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

COUNT = 20_000


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def started(folder: Path, state: StateConfig) -> tuple[Any, Any]:
    """The client, and what it has published; keys are counted, so that nothing may be lost."""
    settings = config(folder / "state", interval_ms=200, batch_size=50, chaining=False, state=state)
    told = {"local_recovery": True, "local_dirs": (str(folder / "local"),)}
    settings = replace(settings, checkpoint=replace(settings.checkpoint, **told))
    env = environment(settings, "ray")
    source = Leashed(folder / "release", COUNT)
    totals = env.from_source(source, source_name="pairs").key_by("key").sum("value")
    collected = totals.map(tuple).execute_and_collect("copying")
    return collected.client, collected


def running(client: Any, more_checkpoints: int) -> dict[str, Any]:
    """The metrics once all tasks run, and so many more checkpoints have completed."""
    wanted = client.metrics()["checkpoints"]["completed"] + more_checkpoints

    def ready() -> Any:
        m = client.metrics()
        states = {t["state"] for t in m["tasks"]}
        enough = m["checkpoints"]["completed"] >= wanted
        return m if enough and m["state"] == "RUNNING" and states == {"running"} else None

    return until(ready, f"a running job, is {client.metrics()}", 60.0)


def killed(client: Any, *indices: int) -> None:
    """Kill these processes, and wait until the job runs again and has taken a checkpoint."""
    tasks = running(client, 2)["tasks"]
    attempt = client.metrics()["attempt"]
    for index in indices or range(len(tasks)):
        os.kill(tasks[index]["pid"], signal.SIGKILL)
    until(lambda: client.metrics()["attempt"] > attempt, "a restart", 60.0)
    figures = running(client, 1)["checkpoints"]
    assert figures["restored_bytes"] == figures["restored_local_bytes"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("state", [StateConfig(), spilling(8)], ids=["memory", "rocksdb"])
def test_killed_processes_start_again_from_copies(tmp_path: Path, state: StateConfig) -> None:
    """New processes find on their machine what the dead ones have left, one of each kind in turn
    and then all at once; and when the job ends nothing is left."""
    client, collected = started(tmp_path, state)
    (root,) = copies_roots([str(tmp_path / "local")])
    killed(client, -1)
    if state == StateConfig():
        killed(client, 0)
        killed(client)
    (tmp_path / "release").touch()
    found = within(120.0, "the rest", lambda: list(collected))
    client.get_job_execution_result(timedelta(seconds=30))
    totals: dict[int, int] = {}
    for record in pairs(0, COUNT).to_pylist():
        totals[record["key"]] = totals.get(record["key"], 0) + record["value"]
    last: dict[int, int] = {}
    for key, total, *_ in found:
        last[key] = max(last.get(key, 0), total)
    assert len(found) == COUNT
    assert last == totals
    until(lambda: list(root.iterdir()) == [], "the removal of all copies", 30.0)
