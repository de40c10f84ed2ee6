"""Programs that end, are interrupted or killed while their jobs run on Ray."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import HangError, until
from ray_programs import job_ids, joined_environ, program, running_job
from shared_ray import CPUS, ray_of
from strom.checkpoint.folder_storage import open_folder
from strom.core.errors import CheckpointError
from strom.engine.hosts.lease import MISSES, PERIOD_S

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


PATIENT = timedelta(minutes=3)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for the module, joined by the programs."""
    with ray_of():
        yield


@pytest.fixture(autouse=True)
def nothing_runs_on(cluster: None) -> Iterator[None]:
    """After every test all slots are free: no job goes on unseen."""
    import ray

    yield
    try:
        until(lambda: ray.available_resources().get("CPU", 0) == CPUS, "free slots", 30.0)
    except HangError as error:
        raise AssertionError(f"{error}; {holders()}") from error
    finally:
        for job_id in job_ids():  # the next test starts without
            with suppress(strom.StromError):
                strom.attach(job_id).cancel(timedelta(seconds=10))


def holders() -> str:
    """Who may have the slots."""
    import ray

    groups = ray.util.placement_group_table().values()
    there = [(one["name"], one["state"]) for one in groups if one["state"] != "REMOVED"]
    actors = ray.util.list_named_actors(all_namespaces=True)
    return f"groups of slots: {there}, actors: {actors}, free: {ray.available_resources()}"


def ends_as(client: Any, status: str, seconds: float) -> None:
    until(lambda: client.get_job_status() == status, f"{status} within {seconds} s", seconds)


def test_sigterm_cancels_like_an_interrupt(tmp_path: Path) -> None:
    before = job_ids()
    with program(tmp_path, "stream.sink_to(strom.DiscardSink())\nenv.execute('waited for')") as it:
        client = running_job(before)
        it.signal(signal.SIGTERM)
        it.end(30.0)
    assert client.get_job_status() == "CANCELED"
    assert it.process.returncode != 0
    (notice,) = it.errors.strip().splitlines()
    assert notice == (
        f"strom: job 'waited for' has the id {client.get_job_id()} and ends with this program; "
        f"from another: strom.attach('{client.get_job_id()}')"
    )


def test_a_handler_of_the_programs_own_stays(tmp_path: Path) -> None:
    text = """
    import signal
    import threading
    heard = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: heard.set())
    stream.sink_to(strom.DiscardSink())
    client = env.execute_async()
    print(client.get_job_id(), flush=True)
    heard.wait()
    print("mine", flush=True)
    client.cancel()
    """
    with program(tmp_path, text) as it:
        assert it.line() == "going"
        job_id = it.line()
        it.signal(signal.SIGTERM)
        assert it.line() == "mine"
        assert it.end(30.0).process.returncode == 0
    assert strom.attach(job_id).get_job_status() == "CANCELED"


def test_a_killed_program_takes_its_job_along(tmp_path: Path) -> None:
    before = job_ids()
    with program(tmp_path, "stream.sink_to(strom.DiscardSink())\nenv.execute()") as it:
        client = running_job(before)
        it.signal(signal.SIGKILL)
        ends_as(client, "CANCELED", 15.0)


COUNT = 12_000

INTO_FILES = f"""
    from strom.connectors.files import FileSink

    checkpoint = strom.CheckpointConfig(timedelta(milliseconds=100), "FOLDER/state", retained=3)
    config = strom.JobConfig(checkpoint=checkpoint, restore_from=RESTORE_FROM)
    env = strom.StreamExecutionEnvironment.get_execution_environment(config, host="ray")
    source = DataGenSource(numbers, {COUNT}, rate=1500.0, block=20)
    env.from_source(source, source_name="few").uid("few").sink_to(
        FileSink("FOLDER/out", format="jsonl")
    ).uid("out")
    env.execute()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_ended_and_started_again_writes_everything_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    text = INTO_FILES.replace("FOLDER", str(tmp_path))
    before = job_ids()
    with program(tmp_path, text.replace("RESTORE_FROM", "None")) as it:
        client = running_job(before)
        until(lambda: client.metrics()["checkpoints"]["completed"] >= 3, "checkpoints", 30.0)
        it.signal(number)
        it.end(30.0)
    if number is signal.SIGKILL:
        ends_as(client, "CANCELED", 15.0)
    assert client.get_job_status() == "CANCELED"
    written = len(rows(tmp_path / "out"))
    assert 0 < written < COUNT
    last = client.metrics()["checkpoints"]["last_id"]
    again = f"{tmp_path}/state/{client.get_job_id()}/chk-{last}"
    with program(tmp_path, text.replace("RESTORE_FROM", repr(again))) as it:
        assert it.end(60.0).process.returncode == 0, it.errors
    assert sorted(rows(tmp_path / "out")) == list(range(COUNT))


def rows(folder: Path) -> list[int]:
    lines = [line for path in folder.glob("part-*") for line in path.read_text().splitlines()]
    return [n for line in lines for n in json.loads(line).values()]


@pytest.mark.soak
def test_a_program_that_is_stopped_for_a_while_keeps_its_job(tmp_path: Path) -> None:
    before = job_ids()
    with program(tmp_path, "stream.sink_to(strom.DiscardSink())\nenv.execute()") as it:
        client = running_job(before)
        it.signal(signal.SIGSTOP)
        time.sleep(MISSES * PERIOD_S / 2)
        it.signal(signal.SIGCONT)
        time.sleep(MISSES * PERIOD_S)
        assert client.get_job_status() == "RUNNING"
        it.signal(signal.SIGINT)
        assert "KeyboardInterrupt" in it.end(30.0).errors
    assert client.get_job_status() == "CANCELED"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_detached_job_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    text = "stream.sink_to(strom.DiscardSink())\nenv.set_attached(False).execute('alone')"
    before = job_ids()
    with program(tmp_path, text) as it:
        client = running_job(before)
        it.signal(number)
        it.end(30.0)
    assert "outlives this program" in it.errors
    time.sleep(4.0)
    assert client.get_job_status() == "RUNNING"
    client.cancel()


def test_a_job_started_asynchronously_outlives_its_program(tmp_path: Path) -> None:
    text = "stream.sink_to(strom.DiscardSink())\nprint(env.execute_async().get_job_id())"
    with program(tmp_path, text) as it:
        assert it.end(60.0).process.returncode == 0
    job_id = it.output.split()[-1]
    time.sleep(4.0)
    client = strom.attach(job_id)
    assert client.get_job_status() in ("CREATED", "RUNNING")
    client.cancel()


@pytest.mark.parametrize(
    "text",
    [
        "stream.sink_to(strom.DiscardSink())\nclient = env.set_attached(True).execute_async()",
        "results = stream.execute_and_collect()\nassert next(results) == 1",
    ],
)
def test_an_attached_job_ends_when_its_program_ends_by_itself(tmp_path: Path, text: str) -> None:
    before = job_ids()
    with program(tmp_path, text) as it:
        assert it.end(60.0).process.returncode == 0, it.errors
    (job_id,) = job_ids() - before
    assert strom.attach(job_id).get_job_status() == "CANCELED"


def test_an_interrupt_while_ray_is_joined_leaves_no_job(tmp_path: Path) -> None:
    before = job_ids()
    with program(tmp_path, "stream.sink_to(strom.DiscardSink())\nenv.execute()") as it:
        assert it.line() == "going"
        it.signal(signal.SIGINT)
        assert "KeyboardInterrupt" in it.end(30.0).errors
    assert running(before) == []


@pytest.mark.parametrize(
    ("delay_s", "how"),
    [(0.0, "execute"), (0.3, "execute_async"), (0.6, "execute"), (1.0, "execute_async")],
)
def test_an_interrupt_during_the_submission_leaves_no_job(
    tmp_path: Path, delay_s: float, how: str
) -> None:
    """So many seconds after the coordinator has its name; its process takes about one to start."""
    before = job_ids()
    text = f"stream.sink_to(strom.DiscardSink())\nenv.{how}()\nprint('gone on')"
    with program(tmp_path, text) as it:
        until(lambda: job_ids() - before, "the coordinator's name", 30.0)
        time.sleep(delay_s)
        it.signal(signal.SIGINT)
        it.end(30.0)
    if "gone on" in it.output:  # the job was submitted by then, to outlive the program
        (job_id,) = running(before)
        strom.attach(job_id).cancel()
    assert running(before) == []


@pytest.mark.soak
def test_a_program_killed_during_the_submission_leaves_no_job(tmp_path: Path) -> None:
    before = job_ids()
    with program(tmp_path, "stream.sink_to(strom.DiscardSink())\nenv.execute()") as it:
        until(lambda: job_ids() - before, "the coordinator's name", 30.0)
        it.signal(signal.SIGKILL)
    until(lambda: not running(before), "no job that runs", 90.0)


def running(before: set[str]) -> list[str]:
    """The jobs submitted since that are not over."""
    return [j for j in job_ids() - before if status_of(j) not in (None, "CANCELED")]


def status_of(job_id: str) -> str | None:
    """None: it is gone by now."""
    try:
        return str(strom.attach(job_id).get_job_status().value)
    except strom.StromError:
        return None


def test_another_program_takes_savepoints_and_stops_the_job_with_one(tmp_path: Path) -> None:
    """One that only knows its id, and says where; the third goes on from the last, elsewhere."""
    text = """
    stream.key_by(lambda n: n % 7).sum().uid("sums").sink_to(strom.DiscardSink())
    env.set_default_savepoint_directory("saved")
    print(env.execute_async("kept").get_job_id(), flush=True)
    """
    with program(tmp_path, text) as it:
        assert it.line() == "going"
        job_id = it.line()
        it.end(30.0)
    client = strom.attach(job_id)
    until(lambda: client.get_job_status() == "RUNNING", "its start", 30.0)
    code, said = commanded(tmp_path, "savepoint", job_id, "other", "--json")
    assert code == 0, said
    path = json.loads(said)["savepoint"]
    _, manifest = open_folder(path, validate=True)
    assert (Path(path).parent, manifest.job_id) == (tmp_path / "other", job_id)
    blocked = client.trigger_savepoint(str(tmp_path / "program-0.py"))
    with pytest.raises(CheckpointError, match=r"program-0\.py/savepoint-.* failed: "):
        blocked.result(PATIENT)
    # Its own directory was the program's, which is another one than the coordinator's.
    code, said = commanded(tmp_path, "stop", job_id, "--drain")
    assert code == 0, said
    path = said.strip()
    assert Path(path).parent == tmp_path / "saved"
    assert client.get_job_status() == "FINISHED"
    assert client.metrics()["checkpoints"]["savepoints"] == 2
    _, manifest = open_folder(path, validate=True)
    assert sum(1 for _ in manifest.files()) >= 2
    with pytest.raises(CheckpointError, match="the job is FINISHED"):
        client.trigger_savepoint(str(tmp_path)).result(PATIENT)
    with pytest.raises(CheckpointError, match="the job is FINISHED"):
        strom.attach(job_id).trigger_savepoint(str(tmp_path)).result(PATIENT)
    code, said = commanded(tmp_path, "stop", job_id)
    assert code == 2
    assert "the job is FINISHED" in said


def commanded(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code of `strom` in a folder, and what it prints; its errors if it fails."""
    command = [sys.executable, "-m", "strom.cli", *words]
    environ = joined_environ()
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240
    )
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr
