"""A session on a real Ray: jobs that wait for each other, dispatchers and coordinators that are
killed, and what comes out all the same."""

from __future__ import annotations

import glob
import json
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
from chaos_kit import (
    as_window_sums,
    config,
    environment,
    until,
    window_sums,
    windows_of,
)
from leashed_source import Leashed
from ray_chaos_kit import actor_pid, coordinator_pid
from session_kit import COUNT, Counting, answer_of, completed
from shared_ray import ray_of
from strom import AdaptiveConfig, DiscardSink, JobCancelledError, JobFailedError, attach
from strom.cluster import dispatcher_client
from strom.cluster.dispatcher import DISPATCHER
from strom.cluster.savepoints import newest_state
from strom.cluster.slot_pool import PREFIX
from strom.core.errors import ConfigurationError, TransportError
from strom.engine.hosts.coordinator_names import find_coordinator
from strom.rest.catalogs.session_jobs import SessionJobs, jobs_there
from wheels_kit import make_wheel

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

CPUS = 4


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of(CPUS):
        yield


@pytest.fixture(autouse=True)
def jobs_end() -> Iterator[None]:
    """What a test that failed left running would take the slots of those after it."""
    yield
    for one in jobs_there().jobs():
        if one.end_ms is None:
            attach(one.id).cancel(timedelta(seconds=60))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dispatcher_client.DispatcherClient]:
    client, new = dispatcher_client.start(str(tmp_path / "registry"), ready=0)
    assert new
    yield client
    dispatcher_client.stop()


def test_jobs_wait_for_each_other_in_their_order(
    tmp_path: Path, session: dispatcher_client.DispatcherClient, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = Counting(tmp_path / "first", 3), Counting(tmp_path / "second", 2)
    client = first.submit()
    waiting = threading.Thread(target=second.submit, daemon=True)
    waiting.start()
    until(lambda: len(session.jobs()) == 2, "the second job")
    (_, nothing), (queued, why) = session.jobs()
    assert (nothing, queued.phase) == ("", "QUEUED")
    assert why.startswith("it needs 2 CPUs, and 1 of 4 are free: first (")
    other = attach(queued.job_id)
    assert other.get_job_status() == "CREATED"
    with pytest.raises(TimeoutError):
        other.get_job_execution_result(timedelta(milliseconds=10))
    first.release()
    client.get_job_execution_result()
    waiting.join(120)
    assert "job 'second'" in capfd.readouterr().err
    second.release()
    result = second.client.get_job_execution_result()
    assert other.get_job_execution_result().job_id == result.job_id
    for job in (first, second):
        job.check()
    until(lambda: session.about()["ended"] == 2, "the account of both")
    kept = session.archived(result.job_id)
    assert kept is not None
    assert (kept["record"]["status"], kept["metrics"]["state"]) == ("FINISHED", "FINISHED")


def test_an_adaptive_job_starts_with_what_is_left_and_grows(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    """The session counts what it has; it grows when the other job is over."""
    first = Counting(tmp_path / "first", 3)
    client = first.submit()
    second = timedelta(seconds=1)
    quickly = AdaptiveConfig(
        True, stabilization=second, cooldown=second, growth_stabilization=second
    )
    adaptive = Counting(tmp_path / "adaptive", 3, adaptive=quickly)
    other = adaptive.submit()
    shortage = until(lambda: other.metrics().get("shortage"), "a smaller job", 60.0)
    assert shortage.startswith("runs with 1 of 3: the job needs 3 slots of 1.0 CPU, the cluster ha")
    until(lambda: session.jobs()[1][0].needs == {"CPU": 1.0}, "what it has", 30.0)
    completed(other, 1)
    first.release()
    client.get_job_execution_result()
    until(lambda: other.metrics()["rescales"] == 1, "its growth", 60.0)
    assert other.metrics()["shortage"] is None
    until(lambda: session.jobs()[0][0].needs == {"CPU": 3.0}, "what it has now", 60.0)
    adaptive.release()
    other.get_job_execution_result()
    first.check()
    adaptive.check()


def test_a_job_outlives_its_coordinator_and_the_dispatcher(
    tmp_path: Path, session: dispatcher_client.DispatcherClient, capfd: pytest.CaptureFixture[str]
) -> None:
    """One whose process dies comes back and goes on with the tasks; after one that is ended for
    good there is another run. The client goes on with both, whatever it waits for meanwhile, and
    has all results; so has who reads none until both are gone."""
    job = Counting(tmp_path / "job", collects=True)
    client = job.submit()
    job_id = str(client.get_job_id())
    results, found, late = list[Any](), list[Any](), list[Any]()
    waits = [
        threading.Thread(target=lambda: results.append(client.get_job_execution_result())),
        threading.Thread(target=lambda: found.extend(job.published())),
    ]
    comes_late = threading.Thread(target=lambda: late.extend(job.published()), daemon=True)
    for thread in waits:
        thread.daemon = True
        thread.start()
    completed(client, 2)
    os.kill(actor_pid(DISPATCHER), signal.SIGKILL)
    assert session.job(job_id)[0].phase == "RUNNING"
    completed(client, 1)
    os.kill(coordinator_pid(job_id), signal.SIGKILL)
    assert client.metrics()["attempt"] == 0, client.view()["failures"]
    assert session.job(job_id)[0].run == 0
    completed(client, 2)
    ray.kill(find_coordinator(job_id), no_restart=True)
    until(lambda: client.metrics()["attempt"] >= 1_000_000, "the second run", 60.0)
    record, _ = session.job(job_id)
    assert (record.run, record.phase) == (1, "RUNNING")
    until(lambda: client.get_job_status() == "RUNNING", "the second run", 60.0)
    path = client.trigger_savepoint(str(tmp_path / "saved")).result(120)
    assert Path(path, "manifest.json").exists()
    comes_late.start()
    job.release()
    for thread in (*waits, comes_late):
        thread.join(240)
    assert results[0].metrics["state"] == "FINISHED"
    until(lambda: session.archived(job_id), "the account of the job", 60.0)
    record, _ = session.job(job_id)
    assert [one.path for one in record.savepoints] == [path]
    assert newest_state(record) == f"{tmp_path}/job/state/{job_id}"
    job.check()
    assert as_window_sums(found) == as_window_sums(late) == window_sums(COUNT)
    said = [line for line in capfd.readouterr().err.splitlines() if "starts it again" in line]
    assert len(said) == 1, said


def test_the_next_dispatcher_takes_up_what_the_last_one_left(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    running, waits = Counting(tmp_path / "running", 3), Counting(tmp_path / "waits", 2)
    client = running.submit()

    def submit() -> None:
        with pytest.raises(TransportError, match="it takes up the jobs"):
            waits.submit()

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    until(lambda: len(session.jobs()) == 2, "the second job")
    registry = session.about()["registry"]
    with pytest.raises(ConfigurationError, match="has its registry in"):
        dispatcher_client.start(str(tmp_path / "another"))
    with pytest.raises(ConfigurationError, match="keeps 10000 jobs that are over, and not 7"):
        dispatcher_client.start(registry, retained=7)
    assert dispatcher_client.stop()
    running.release()
    client.get_job_execution_result()
    again, new = dispatcher_client.start(registry, ready=0)
    assert new
    job_id = str(client.get_job_id())
    until(lambda: again.job(job_id)[0].phase == "ENDED", "the end of the first", 60.0)
    until(lambda: again.jobs()[0][0].phase == "RUNNING", "the start of the second", 60.0)
    other = again.jobs()[0][0].job_id
    again.cancel(other)
    until(lambda: again.job(other)[0].status == "CANCELED", "its end", 60.0)
    running.check()
    assert dispatcher_client.stop()
    third, _ = dispatcher_client.start(registry, retained=7, ready=0)
    assert third.about()["retained_jobs"] == 7
    until(lambda: len(third.jobs()) == 2, "the history")
    assert [record.job_id for record, _ in third.jobs()] == [other, job_id]
    over = attach(job_id)
    over._lost(over._coordinator, Exception())  # as if its coordinator had gone before
    result = over.get_job_execution_result()
    assert (result.metrics["state"], result.checkpoints > 0) == ("FINISHED", True)
    assert over.view()["status"] == "FINISHED"
    assert over.get_accumulators() == {}
    with pytest.raises(JobCancelledError):
        attach(other).get_job_execution_result()


def test_what_waits_is_cancelled_and_told(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    huge = Counting(tmp_path / "huge", 9, slot_request_timeout=timedelta(seconds=1))
    with pytest.raises(JobFailedError, match="needs 9 CPUs for 9 slots"):
        huge.submit()
    first, second = Counting(tmp_path / "first", 4), Counting(tmp_path / "second", 2)
    client = first.submit()
    told: list[BaseException] = []

    def submit() -> None:
        try:
            second.submit()
        except JobCancelledError as error:
            told.append(error)

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    until(lambda: len(session.jobs(ended=0)) == 2, "the second job")
    session.cancel(session.jobs()[1][0].job_id)
    thread.join(60)
    assert len(told) == 1
    client.cancel()


def test_the_command_line(tmp_path: Path, session: dispatcher_client.DispatcherClient) -> None:
    # Records flow as long as it is looked at.
    job = Counting(tmp_path / "job", attached=False, count=1_000_000)
    job_id = str(job.submit().get_job_id())
    completed(job.client, 1)
    (listed,) = json.loads(answer_of("list", "--json"))
    assert (listed["job_id"], listed["status"], listed["cpus"]) == (job_id, "RUNNING", 2.0)
    assert "RUNNING" in answer_of("list")
    assert json.loads(answer_of("cluster", "status", "--json"))["running"] == 1
    assert job_id in answer_of("info", job_id)
    looked = json.loads(answer_of("top", job_id, "--json"))
    assert [vertex["tasks"] for vertex in looked["vertices"]] == [2, 2]
    assert looked["operators"][0]["out_per_s"] > 0
    assert "watermark" in answer_of("top", job_id, "--once", "--interval", "0.1")
    (vertex, *_) = json.loads(answer_of("autoscale", job_id, "--window", "1", "--json"))["vertices"]
    assert vertex["parallelism"] >= 1
    moved = json.loads(
        answer_of("rescale", job_id, "1", "--directory", f"{tmp_path}/moved", "--json")
    )
    assert moved["savepoint"].startswith(f"{tmp_path}/moved/")
    job_id = moved["job_id"]
    until(lambda: json.loads(answer_of("info", job_id, "--json"))["status"] == "RUNNING", "it")
    known = json.loads(answer_of("checkpoints", job_id, "--json"))
    assert known["restored"]["savepoint"]
    assert "parallelism 1" in answer_of("plan", job_id)
    answer_of("cancel", job_id)
    until(lambda: json.loads(answer_of("info", job_id, "--json"))["status"] == "CANCELED", "it")
    assert "this session has no job 'nix'" in answer_of("info", "nix", code=2)
    until(lambda: session.archived(job_id), "its account")
    for name in ("plan", "checkpoints"):  # of the registry
        assert json.loads(answer_of(name, job_id, "--json"))["status"] == "CANCELED"


def test_jobs_that_no_dispatcher_knows_of(tmp_path: Path) -> None:
    job = Counting(tmp_path / "job", attached=False)
    job_id = str(job.submit().get_job_id())
    completed(job.client, 1)
    (listed,) = [one for one in json.loads(answer_of("list", "--json")) if one["phase"] != "ENDED"]
    assert (listed["job_id"], listed["name"], listed["status"]) == (job_id, "job", "RUNNING")
    assert (listed["cpus"], listed["slots"], listed["attached"]) == (2.0, 2, False)
    assert "RUNNING" in answer_of("list")
    assert job_id in answer_of("info", job_id)
    assert "watermark" in answer_of("top", job_id, "--once", "--interval", "0.1")
    assert "RUNNING" in answer_of("logs", job_id)
    (seen,) = [one for one in jobs_there().jobs() if one.end_ms is None]  # as REST would have it
    assert (seen.id, seen.status, seen.tasks) == (job_id, "RUNNING", {"RUNNING": 4})
    planned = json.loads(answer_of("plan", job_id, "--json"))
    assert [node["parallelism"] for node in planned["nodes"]] == [2, 2]
    assert planned["nodes"][1]["inputs"][0]["ship"].startswith("HASH(")
    kinds = [o["implementation"]["kind"] for node in planned["nodes"] for o in node["operators"]]
    assert "kernel" in kinds
    taken = answer_of("savepoint", job_id, f"{tmp_path}/savepoints").strip()
    known = json.loads(answer_of("checkpoints", job_id, "--json"))
    assert known["latest_savepoint"]["path"] == taken
    assert known["completed"] >= 1
    assert "only a session" in answer_of("rescale", job_id, "1", "--savepoint", code=2)
    assert "2 to 1" in answer_of("rescale", job_id, "1")
    assert "this cluster has no job 'nix'" in answer_of("cancel", "nix", code=2)

    # A session takes in what was there before it.
    dispatcher_client.start(str(tmp_path / "registry"), ready=0)
    try:
        other = Counting(tmp_path / "other")
        other_id = str(other.submit().get_job_id())
        both = json.loads(answer_of("list", "--ended", "0", "--json"))
        assert [one["job_id"] for one in both] == [other_id, job_id]
        alive = {one.id for one in SessionJobs().jobs() if one.end_ms is None}
        assert alive == {other_id, job_id}
        assert SessionJobs().view(job_id)["name"] == "job"
        assert "only a session" in answer_of("rescale", job_id, "1", "--savepoint", code=2)
    finally:
        dispatcher_client.stop()

    assert "CANCELLING" in answer_of("cancel", other_id)
    until(lambda: json.loads(answer_of("info", other_id, "--json"))["status"] == "CANCELED", "it")
    assert json.loads(answer_of("checkpoints", other_id, "--json"))["status"] == "CANCELED"
    assert "savepoints" in answer_of("stop", job_id, "-p", f"{tmp_path}/savepoints")
    ended = {one["job_id"]: one for one in json.loads(answer_of("list", "--json"))}
    assert (ended[job_id]["phase"], ended[job_id]["status"]) == ("ENDED", "FINISHED")


def test_execute_need_not_wait(tmp_path: Path, session: dispatcher_client.DispatcherClient) -> None:
    env = environment(config(wait=False), "ray")
    windows_of(env, Leashed(tmp_path / "release", COUNT)).sink_to(DiscardSink())
    result = env.execute("not waited for")
    with pytest.raises(ConfigurationError, match="its runtime is not known"):
        result.get_net_runtime()
    client = attach(str(result.get_job_id()))
    assert not client.ends_with_program
    client.cancel()


PROGRAM = """
import os, sys
from strom import StreamExecutionEnvironment
from strom.connectors.files import FileSink

def tagged(n):
    import strom_tiny  # out of the wheel, wherever this is
    return {"tag": os.environ.get("COLOUR", "none") + " " + strom_tiny.__name__, "n": n}

if __name__ == "__main__":
    out, graph = sys.argv[1:]
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(tagged).sink_to(FileSink(out, format="jsonl"))
    if graph:
        env.get_job_graph("saved").save(graph)
    env.execute("brought")
"""


def test_programs_are_brought_with_what_their_jobs_need(
    tmp_path: Path, session: dispatcher_client.DispatcherClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel and a variable go with the job; a graph that was saved has its wheel, too."""
    import ray

    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    make_wheel(tmp_path, "strom_tiny", "1.0", PROGRAM)
    (wheel,) = tmp_path.glob("*.whl")
    out, graph = tmp_path / "out", str(tmp_path / "graph")

    def tags() -> list[str]:
        files = glob.glob(f"{out}/**/*.jsonl", recursive=True)
        return sorted(json.loads(row)["tag"] for file in files for row in Path(file).open())

    brought = ["--wheel", str(wheel), "--env-var", "COLOUR=red", "-m", "strom_tiny"]
    answer_of("run", *brought, str(out), graph)
    assert tags() == ["red strom_tiny"] * 2
    answer_of("run", "--graph", graph)
    assert tags() == ["red strom_tiny"] * 4
    (second, _), (first, _) = session.jobs()
    assert (first.name, second.name) == ("brought", "saved")
    table = ray.util.placement_group_table().values()
    names = [group["name"] for group in table if group["name"].startswith(PREFIX)]
    assert sum(first.job_id in name for name in names) == 1
    assert not any(second.job_id in name for name in names), "it has the slots of the first"
    until(lambda: session.about()["ended"] == 2, "the account of both")
    dispatcher_client.stop()

    def left() -> list[str]:
        table = ray.util.placement_group_table().values()
        found = [group["name"] for group in table if group["state"] != "REMOVED"]
        return [name for name in found if name.startswith(PREFIX)]

    until(lambda: not left(), "the release of all slots")
