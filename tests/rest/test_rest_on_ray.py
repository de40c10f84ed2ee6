"""The REST API of a session on a real Ray: a job that runs, what may be done with it, what is left
of it when it is over, and its archive without Ray."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from chaos_kit import config, environment, until, window_sums, windows_of
from leashed_source import Leashed
from shared_ray import ray_of
from strom import FixedDelayRestart, MapFunction
from strom.cli.main import app
from strom.cluster import dispatcher_client
from strom.connectors.files import ParquetSink
from strom.core.errors import ConfigurationError, ResourceError
from strom.rest.catalogs.archive import Archive
from strom.rest.servers import session_server
from strom.rest.servers.api import Serving
from typer.testing import CliRunner

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

COUNT = 2_000


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of(4):
        yield


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    return Serving(port=0, programs=str(tmp_path_factory.mktemp("programs")))


@pytest.fixture(scope="module")
def url(registry: Path, serving: Serving) -> Iterator[str]:
    dispatcher_client.start(str(registry), ready=0)
    yield str(session_server.start(serving)["rest"]) + "/v1"
    session_server.stop()
    dispatcher_client.stop()


def ask(url: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def get(url: str) -> Any:
    status, answer = ask(url)
    assert status == 200, (status, answer)
    return answer


class Counting:
    """A job that sums windows until it is released. `failing`: it raises at its first record."""

    def __init__(self, folder: Path, url: str, failing: bool = False, **settings: Any) -> None:
        folder.mkdir()
        settings.setdefault("interval_ms", 200)
        made = config(folder / "state", batch_size=20, **settings)
        env = environment(made, "ray")
        self.folder, self.release = folder, folder / "release"
        stream = windows_of(env, Leashed(self.release, COUNT), Raising() if failing else None)
        stream.sink_to(ParquetSink(folder / "out"))
        self.client = env._submit(env.get_job_graph(folder.name))
        self.id = str(self.client.get_job_id())
        self.url = f"{url}/jobs/{self.id}"

    def completed(self, more: int = 1) -> None:
        """Wait until so many more checkpoints are complete."""

        def count() -> int:
            return int(get(f"{self.url}/checkpoints")["counts"]["completed"])

        wanted = count() + more
        until(lambda: count() >= wanted, "checkpoints", 60.0)

    def is_over(self, status: str) -> None:
        until(lambda: get(self.url)["state"] == status, f"the end of {self.id}", 60.0)

    def outcome_of(self, request: str, body: Any = None) -> Any:
        """What an operation comes to that is asked for at this path."""
        status, asked = ask(f"{self.url}/{request}", "POST", body or {})
        assert status == 202, asked
        place = f"{self.url}/savepoints/{asked['request-id']}"
        done = until(lambda: _done(get(place)), request, 60.0)
        return done["operation"]

    def rescaled(self, parallelism: int, folder: Path | None = None) -> Any:
        more = "" if folder is None else f"&targetDirectory={folder}"
        status, asked = ask(f"{self.url}/rescaling?parallelism={parallelism}{more}", "PATCH")
        assert status == 200, asked
        place = f"{self.url}/rescaling/{asked['request-id']}"
        return until(lambda: _done(get(place)), "the rescaling", 60.0)["operation"]


def _done(found: Any) -> Any:
    return found if found["status"]["id"] == "COMPLETED" else None


class Raising(MapFunction):
    def map(self, value: Any) -> Any:
        raise ValueError("no way: password=hush")


def test_a_job_from_its_start_to_the_archive(tmp_path: Path, url: str, registry: Path) -> None:
    job = Counting(tmp_path / "counting", url)
    job.completed()
    details = get(job.url)
    assert (details["state"], details["name"]) == ("RUNNING", "counting")
    assert details["status-counts"]["RUNNING"] == len(details["vertices"])
    (line,) = [one for one in get(f"{url}/jobs/overview")["jobs"] if one["jid"] == job.id]
    assert line["tasks"]["running"] == sum(v["parallelism"] for v in details["vertices"])
    vertex = details["vertices"][-1]["id"]
    (first, _) = get(f"{job.url}/vertices/{vertex}")["subtasks"]
    managers = get(f"{url}/taskmanagers")
    assert first["taskmanager-id"] in [one["id"] for one in managers["taskmanagers"]]
    assert [node["cpus"] for node in managers["nodes"]] == [4.0]
    newest = get(f"{job.url}/checkpoints")["latest"]["completed"]
    parts = get(f"{job.url}/checkpoints/details/{newest['id']}/subtasks/{vertex}")
    assert [part["status"] for part in parts["subtasks"]] == ["completed", "completed"]
    assert newest["state_size"] > 0
    assert newest["external_path"].endswith(f"/chk-{newest['id']}")
    overview = get(f"{url}/overview")
    assert (overview["slots-total"], overview["slots-available"]) == (4, 2)
    job.release.touch()
    job.client.get_job_execution_result()
    job.is_over("FINISHED")
    after = get(job.url)
    assert after["status-counts"]["FINISHED"] == len(details["vertices"])
    assert after["start-time"] == details["start-time"]
    until(lambda: (registry / "history" / f"{job.id}.json").exists(), "the archive", 60.0)
    archive = Archive(str(registry))
    kept = archive.view(job.id)
    assert (kept["status"], len(kept["tasks"])) == ("FINISHED", line["tasks"]["total"])
    assert kept["checkpoints"]["history"][0]["terminal"]


def test_a_savepoint_and_a_stop(tmp_path: Path, url: str) -> None:
    job = Counting(tmp_path / "saved", url)
    job.completed()
    taken = job.outcome_of("savepoints", {"target-directory": str(tmp_path / "savepoints")})
    assert Path(taken["location"]).is_dir()
    latest = get(f"{job.url}/checkpoints")["latest"]["savepoint"]
    assert (latest["external_path"], latest["is_savepoint"]) == (taken["location"], True)
    failed = job.outcome_of("savepoints")
    assert "savepoint_directory" in failed["failure-cause"]["stack-trace"]
    stopped = job.outcome_of("stop", {"targetDirectory": str(tmp_path / "savepoints")})
    assert stopped["location"] != taken["location"]
    job.is_over("FINISHED")
    late = job.outcome_of("savepoints", {"target-directory": str(tmp_path)})
    # Of the session, or of a coordinator whose end it has not heard of yet.
    assert "FINISHED" in late["failure-cause"]["stack-trace"]


def test_a_job_that_is_cancelled(tmp_path: Path, url: str) -> None:
    job = Counting(tmp_path / "cancelled", url)
    job.completed()
    assert ask(job.url, "PATCH") == (202, {})
    job.is_over("CANCELED")
    tasks = {v["status"] for v in get(job.url)["vertices"]}
    assert tasks == {"CANCELED"}
    assert ask(job.url, "PATCH") == (202, {})


def test_a_job_that_fails(tmp_path: Path, url: str) -> None:
    restart = FixedDelayRestart(1, timedelta(0))
    job = Counting(tmp_path / "failing", url, failing=True, restart=restart)
    job.is_over("FAILED")
    found = get(f"{job.url}/exceptions")
    assert "ValueError: no way: password=***" in found["root-exception"]
    newest, first = found["exceptionHistory"]["entries"]
    assert (newest["attempt"], first["attempt"]) == (1, 0)
    assert "behind the source" in newest["taskName"]
    assert "hush" not in json.dumps([found, get(f"{job.url}/config")])
    details = get(job.url)
    assert (details["restarts"], details["attempt"]) == (1, 1)
    assert details["timestamps"]["RESTARTING"] > 0


def test_a_job_that_is_rescaled(tmp_path: Path, url: str) -> None:
    job = Counting(tmp_path / "rescaled", url, attached=False)
    job.completed()
    assert "attempt" in get(job.url)
    tight = job.rescaled(4 + 1)
    assert "would need 5 CPUs, and 4 are there" in tight["failure-cause"]["stack-trace"]
    assert get(job.url)["state"] == "RUNNING"
    done = job.rescaled(3, tmp_path / "savepoints")
    job.is_over("FINISHED")
    job.url = job.url.replace(job.id, done["jobid"])
    job.completed()
    widths = {v["name"]: v["parallelism"] for v in get(job.url)["vertices"]}
    assert set(widths.values()) == {3}
    assert get(f"{job.url}/checkpoints")["latest"]["restored"]["is_savepoint"]
    job.release.touch()
    job.is_over("FINISHED")
    files = [str(path) for path in (job.folder / "out").rglob("*.parquet")]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    found = [(r["key"], r["window_start"], r["n"], r["total"]) for r in rows]
    assert sorted(found) == window_sums(COUNT)


def test_a_program_that_is_uploaded(tmp_path: Path, url: str) -> None:
    program = """
import sys
import strom

env = strom.StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection(list(range(10)))
factor = int(sys.argv[1])
numbers.map(lambda n: n * factor).sink_to(strom.DiscardSink())
env.execute("uploaded")
"""
    part = 'form-data; name="jarfile"; filename="job.py"'
    body = f"--x\r\nContent-Disposition: {part}\r\n\r\n{program}\r\n--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    request = urllib.request.Request(f"{url}/programs/upload", body.encode(), kind)
    with urllib.request.urlopen(request, timeout=60) as answer:
        made = json.load(answer)
    place = f"{url}/programs/{made['id']}"
    status, ran = ask(f"{place}/run", "POST", {"programArgsList": ["2"], "parallelism": 2})
    assert status == 200, ran

    def first_job() -> Any:
        return get(f"{place}/runs/{ran['request-id']}")["jobid"]

    job = until(first_job, "the job of the program", 120.0)
    until(lambda: get(f"{url}/jobs/{job}")["end-time"] > 0, "its end", 60.0)
    assert get(f"{url}/jobs/{job}")["state"] == "FINISHED", get(f"{url}/jobs/{job}/exceptions")
    found = get(f"{url}/jobs/{job}/config")
    assert (found["name"], found["execution-config"]["job-parallelism"]) == ("uploaded", 2)


def test_jobs_that_there_are_not(url: str) -> None:
    status, answer = ask(f"{url}/jobs/0000000000000000")
    assert (status, answer) == (404, {"errors": ["this session has no job '0000000000000000'"]})
    assert ask(f"{url}/jobs/0000000000000000", "PATCH")[0] == 404


def test_a_session_that_is_served_otherwise_already(
    url: str, serving: Serving, tmp_path: Path
) -> None:
    """One that is open to more than is asked for now is another, too."""
    port = int(url.rpartition(":")[2].removesuffix("/v1"))
    for same in (serving, replace(serving, port=None), replace(serving, port=port)):
        assert session_server.start(same)["rest"] + "/v1" == url
    others = {
        "port": replace(serving, port=port + 1),
        "tokens": replace(serving, tokens=str(tmp_path / "tokens")),
        "programs": replace(serving, programs=None),
        "names": replace(serving, names=("streams",)),
    }
    for what, other in others.items():
        with pytest.raises(ConfigurationError, match=rf"served already.*its {what}"):
            session_server.start(other)


def test_the_command_line_says_where(url: str) -> None:
    done = CliRunner().invoke(app, ["cluster", "status"])
    assert f"its REST API: {url}" in done.output


def test_a_server_that_dies_comes_back(url: str) -> None:
    (process,) = [
        one
        for one in psutil.Process().children(recursive=True)
        if one.status() != psutil.STATUS_ZOMBIE and "SessionServer" in " ".join(one.cmdline())
    ]
    process.kill()
    process.wait(60)

    def again() -> Any:
        try:
            return "jobs" in get(f"{url}/jobs")
        except OSError:
            return None

    assert until(again, "the server, where it was", 60.0)


def test_a_port_that_is_taken(url: str) -> None:
    session_server.stop()
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ResourceError, match="cannot listen on"),
    ):
        session_server.start(Serving(port=other.getsockname()[1]))
    until(lambda: not session_server.stop(), "its end", 60.0)
    assert session_server.start(Serving(port=0))["rest"].startswith("http://127.0.0.1:")
