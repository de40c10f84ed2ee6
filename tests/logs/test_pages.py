"""Pages of a job's lines: odd cursors, many processes, what is archived, and other nodes."""

from __future__ import annotations

import base64
import json
import sys
import threading
import zlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from strom.core.config import ExchangeConfig
from strom.core.errors import ConfigurationError
from strom.engine.hosts import job_logs
from strom.engine.hosts.job_logs import JobLogs
from strom.logs import files, reading
from strom.logs.files import LogFolder
from strom.logs.filters import LogFilter, moment
from strom.rest.paths import flame_graphs


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "logs_root", lambda: tmp_path)
    return tmp_path


def entry(n: int, message: str | None = None) -> dict[str, Any]:
    time = f"2030-01-01T00:00:00.{n:06}Z"
    return {"time": time, "level": "INFO", "logger": "x", "message": message or f"m{n}"}


def put(name: str, *entries: dict[str, Any]) -> Path:
    folder = LogFolder("j", None)
    folder.close()
    text = "".join(json.dumps(one) + "\n" for one in entries)
    (folder.path / f"{name}.jsonl").write_text(text)
    return folder.path


def sealed(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def said(entries: list[dict[str, Any]]) -> list[str]:
    return [one["message"] for one in entries]


@pytest.mark.parametrize(
    "text",
    [
        *('{"f": {"x": Infinity}}', '{"f": {"x": NaN}}', "[" * 100_000, '{"a":' * 100_000),
        *("[1]", '{"f": 1}', '{"f": {"x": "a"}}', "9" * 5_000, ""),
    ],
)
def test_what_is_no_cursor(text: str) -> None:
    put("task-1-1.000001", entry(1))
    with pytest.raises(ConfigurationError, match="cursor"):
        JobLogs("j").read(sealed(text))


@pytest.mark.parametrize("at", ["1" + "0" * 25, "-5", "1e18", str(1 << 62), str((1 << 64) - 1)])
def test_any_place_is_one(at: str) -> None:
    name = files.name_of(put("task-1-1.000001", entry(1)))
    cursor = sealed(f'{{"{name}": {{"task-1-1.000001.jsonl": {at}}}}}')
    assert said(JobLogs("j").read(cursor).entries) == (["m1"] if at == "-5" else [])


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "9" * 20 + "d"]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a time is"):
        moment(text, datetime.now(UTC))


def test_halves_of_pairs_are_read_as_their_escapes() -> None:
    put("task-1-1.000001", entry(1, "caf\udce9 \U0001f600"))
    (one,) = JobLogs("j").read(None).entries
    assert one["message"].encode() == "caf\\udce9 \U0001f600".encode()


def test_the_last_lines_of_many_processes_are_read_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 40_000)
    monkeypatch.setattr(reading, "LEAST_CHUNK", 1_000)
    for process in range(20):
        put(f"task-{process}-1.000001", *[entry(n * 20 + process) for n in range(100)])
    asked, read = [], job_logs.read_here
    monkeypatch.setattr(job_logs, "read_here", lambda *a: asked.append(a) or read(*a))
    logs = JobLogs("j")
    page = logs.tail(50)
    assert said(page.entries) == [f"m{n}" for n in range(1950, 2000)]
    assert (len(asked), page.more) == (1, False)
    put("task-20-1.000001", entry(2000))
    assert said(logs.read(page.cursor).entries) == ["m2000"]


def test_what_is_archived_is_read_where_there_are_no_files() -> None:
    kept = [entry(n) for n in range(10)]
    logs = JobLogs("j", lambda: kept)
    assert said(logs.tail(2).entries) == ["m8", "m9"]
    assert said(logs.read(logs.tail(2).cursor).entries) == []
    found, cursor, more = [], None, True
    while more:
        page = logs.read(cursor, LogFilter(text="m"), 4)
        found.append(said(page.entries))
        cursor, more = page.cursor, page.more
    assert found == [["m0", "m1", "m2", "m3"], ["m4", "m5", "m6", "m7"], ["m8", "m9"]]
    assert logs.read(cursor).entries == []
    assert said(logs.read(None, LogFilter(text="m7")).entries) == ["m7"]
    put("task-1-1.000001", entry(77))
    assert said(logs.read(None).entries) == ["m77"]


def test_a_directory_is_read_to_which_nothing_leads_any_more(tmp_path: Path) -> None:
    put("task-1-1.000001", entry(1)).rename(tmp_path / "elsewhere")
    (tmp_path / "disk").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "disk" / "j")
    assert JobLogs("j").read(None).entries == []
    assert said(JobLogs("j", None, str(tmp_path / "disk")).read(None).entries) == ["m1"]


class FakeRay:
    """Of nodes that do not answer."""

    def __init__(self) -> None:
        self.functions = 0
        self.begun: list[object] = []
        self.cancelled: list[object] = []
        self.exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=KeyError)

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        node = {"Alive": True, "NodeID": "0" * 56, "NodeManagerHostname": "far"}
        return [node, {**node, "NodeID": "1" * 56}]

    def remote(self, function: Any) -> Any:
        self.functions += 1
        return self

    def options(self, **_: Any) -> Any:
        def begin(*_: Any) -> object:
            self.begun.append(object())
            return self.begun[-1]

        return SimpleNamespace(remote=begin)

    def wait(self, refs: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return [], refs

    def get(self, ref: object, timeout: float) -> Any:
        raise RuntimeError("late")

    def cancel(self, ref: object) -> None:
        self.cancelled.append(ref)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    import ray.exceptions
    import ray.util.scheduling_strategies  # noqa: F401

    made = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.exceptions", made.exceptions)
    for cached in (job_logs._read_there, flame_graphs._sampled_there):
        cached.cache_clear()
    yield made
    for cached in (job_logs._read_there, flame_graphs._sampled_there):
        cached.cache_clear()


def test_ray_is_given_one_function_and_late_calls_are_cancelled(ray: Any) -> None:
    for _ in range(3):
        page = JobLogs("j").read(None)
        assert "did not answer" in page.missing["far"]
    assert (ray.functions, len(ray.begun)) == (1, 6)
    assert ray.cancelled == ray.begun


def test_flame_graphs_do_the_same(ray: Any) -> None:
    for _ in range(3):
        with pytest.raises(flame_graphs.Unavailable):
            flame_graphs._begun_on("far", [1], "FULL")()
    assert (ray.functions, len(ray.begun)) == (1, 3)
    assert ray.cancelled == ray.begun


def test_what_old_jobs_left_is_removed_beside_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from strom.core.logging_config import LoggingConfig
    from strom.logs import process
    from strom.logs.scope import LogScope

    may_go, swept = threading.Event(), threading.Event()

    def sweep(*_: Any) -> None:
        may_go.wait(60)
        swept.set()

    monkeypatch.setattr(process, "sweep", sweep)
    log = process.open_log(LoggingConfig(), LogScope("j", "job"), "program", alone=False)
    assert not swept.is_set()
    process.close_log(log)
    may_go.set()
    assert swept.wait(60)


async def _prepared(monkeypatch: pytest.MonkeyPatch) -> tuple[list[threading.Thread], Any]:
    import asyncio

    from strom.engine.hosts import ray_task

    threads: list[threading.Thread] = []
    monkeypatch.setattr(
        ray_task, "open_log", lambda *_, **__: threads.append(threading.current_thread())
    )
    endpoint = SimpleNamespace(address="here", move=lambda site: None)
    monkeypatch.setattr(ray_task, "SocketEndpoint", lambda *_: endpoint)
    monkeypatch.setattr(ray_task, "get_node_ip_address", lambda: "127.0.0.1")
    actor = object.__new__(ray_task.TaskActor)
    actor._preparing, actor._endpoint, actor._folder = asyncio.Lock(), None, None
    log: Any = ("config", "scope")
    admittance = ray_task.Admittance(b"")
    told = await actor.prepare(Any, ExchangeConfig(), admittance, False, (), None, log)
    return threads, told


def test_an_actor_opens_its_log_beside_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    threads, (address, _) = asyncio.run(_prepared(monkeypatch))
    assert address == "here"
    assert threads
    assert threads[0] is not threading.main_thread()
