"""Logs of jobs on Ray: from all processes, while they run, when they were killed, when they are
over; as the command shows them."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, within
from leashed_source import Leashed
from shared_ray import ray_of
from strom import DiscardSink
from strom.cli.main import app
from strom.cluster import dispatcher_client
from strom.engine.hosts.job_logs import JobLogs
from strom.logs.filters import LogFilter
from typer.testing import CliRunner

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dispatcher_client.DispatcherClient]:
    client, _ = dispatcher_client.start(str(tmp_path / "registry"), ready=0)
    yield client
    dispatcher_client.stop()


class Talking:
    """A job that says each record until it is released; it counts to 50."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.released = folder / "release"
        made = config(folder / "state", parallelism=2, batch_size=5, interval_ms=200)
        env = environment(made, "ray")
        stream = env.from_source(Leashed(self.released, 50))

        def told(record: Any) -> Any:
            logging.getLogger("talk").info("saw %s", record)
            print("printed", record)
            return record

        mapped = stream.map(told).name("tell")
        mapped.sink_to(DiscardSink())
        self.client = env.execute_async("talking")
        self.job_id = str(self.client.get_job_id())

    def lines(self, **wanted: Any) -> list[dict[str, Any]]:
        return JobLogs(self.job_id).read(None, LogFilter(**wanted), 10_000).entries

    def until(self, count: int, **wanted: Any) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 60
        while len(found := self.lines(**wanted)) < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found


def command(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["logs", *words])
    assert done.exit_code == code, done.output
    return done.output


def test_all_processes_in_one_place(tmp_path: Path) -> None:
    job = Talking(tmp_path / "job")
    said = job.until(1, operator="tell", text="saw")
    assert said[0]["job_name"] == "talking"
    assert said[0]["process"] == "task"
    prints = job.until(1, operator="tell", text="printed")
    assert prints[0]["logger"] == "stdout"
    assert {line["attempt"] for line in said} == {0}
    assert any("RUNNING" in line["message"] for line in job.until(1, text="RUNNING"))

    os.kill(said[0]["pid"], signal.SIGKILL)
    again = job.until(1, operator="tell", attempt=1)
    assert len({line["pid"] for line in again}) <= 2
    assert job.lines(text="restart 1")[0]["level"] == "WARNING"
    assert job.lines(attempt=0), "what the killed process said is still there"

    followed: list[str] = []
    follower = threading.Thread(
        target=lambda: followed.append(command(job.job_id, "-f", "--json", "--operator", "tell")),
        name="follower",
    )
    follower.start()
    job.released.touch()
    within(60, "end", job.client.get_job_execution_result)
    follower.join(60)
    assert not follower.is_alive()
    shown = [json.loads(line) for line in followed[0].splitlines()]
    assert shown == job.lines(operator="tell")
    assert [line["time"] for line in shown] == sorted(line["time"] for line in shown)

    assert "saw" in command(job.job_id, "--tail", "500", "--grep", "saw", "--subtask", "0")
    assert command(job.job_id, "--level", "error") == ""
    assert "neither" in command(job.job_id, "--since", "soon", code=2)


def test_what_a_session_keeps_of_a_job_whose_files_are_gone(
    session: dispatcher_client.DispatcherClient, tmp_path: Path
) -> None:
    import shutil

    from strom.logs.files import log_folder

    job = Talking(tmp_path / "job")
    job.until(1, operator="tell")
    job.released.touch()
    within(60, "end", job.client.get_job_execution_result)
    deadline = time.monotonic() + 30
    while not session.last_lines(job.job_id):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    shutil.rmtree(log_folder(job.job_id))
    assert "saw" in command(job.job_id, "--operator", "tell", "--tail", "3")
    assert len(command(job.job_id, "--operator", "tell", "--tail", "3").splitlines()) == 3
    assert "no job" in command("nothing", code=2)
