"""Jobs on the local host, whose functions log and print."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from strom import (
    AsyncDataStream,
    Configuration,
    DiscardSink,
    JobFailedError,
    StreamExecutionEnvironment,
)
from strom.core.errors import ConfigurationError
from strom.engine.hosts.job_logs import JobLogs
from strom.logs import files
from strom.logs.filters import LogFilter


@pytest.fixture(autouse=True)
def _own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "logs_root", lambda: tmp_path / "root")


def environment(tmp_path: Path, **options: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("strom.logging.dir", str(tmp_path / "logs"))
    for key, value in options.items():
        configuration.set_string(f"strom.logging.{key.replace('_', '-')}", value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def said(job_id: str, **wanted: Any) -> list[dict[str, Any]]:
    return JobLogs(job_id).read(None, LogFilter(**wanted)).entries


def test_lines_name_their_operators_in_a_chain(tmp_path: Path) -> None:
    log = logging.getLogger("shop")
    env = environment(tmp_path)

    def priced(n: int) -> int:
        log.info("price of %s", n)
        return n

    def packed(n: int) -> int:
        print("packed", n)
        return n

    stream = env.from_collection([1, 2]).map(priced).name("price").map(packed).name("pack")
    stream.sink_to(DiscardSink())
    result = env.execute("shop")
    mine = said(result.job_id, operator="price")
    assert [line["message"] for line in mine] == ["price of 1", "price of 2"]
    assert {(line["job_name"], line["subtask"], line["attempt"]) for line in mine} == {
        ("shop", 0, 0)
    }
    assert [e["message"] for e in said(result.job_id, operator="pack")] == ["packed 1", "packed 2"]
    assert {e["operator"] for e in said(result.job_id, text="pack")} == {"pack"}


def test_what_coroutines_and_their_threads_say(tmp_path: Path) -> None:
    log = logging.getLogger("shop")
    env = environment(tmp_path)

    async def asked(n: int) -> list[int]:
        log.info("asked %s", n)
        await asyncio.to_thread(print, "helped", n)
        return [n]

    stream = AsyncDataStream.unordered_wait(env.from_collection([1]), asked, 10_000)
    stream.name("ask").map(lambda n: n).name("after").sink_to(DiscardSink())
    result = env.execute()
    assert [e["message"] for e in said(result.job_id, operator="ask")] == ["asked 1", "helped 1"]


def test_levels_and_the_end_of_a_job(tmp_path: Path) -> None:
    log = logging.getLogger("shop.deep")
    env = environment(tmp_path, **{"level": "ERROR", "levels.shop": "DEBUG"})

    def broken(n: int) -> int:
        log.debug("now")
        raise KeyError("gone")

    env.from_collection([1]).map(broken).name("break").sink_to(DiscardSink())
    with pytest.raises(JobFailedError):
        env.execute("shop")
    (folder,) = (tmp_path / "logs").iterdir()
    lines = said(folder.name)
    assert [line["message"] for line in lines if line["logger"] == "shop.deep"] == ["now"]
    (end,) = said(folder.name, level="ERROR")
    assert "KeyError: 'gone'" in end["message"]


def test_without_a_folder_a_local_job_writes_nothing(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).map(lambda n: print(n)).sink_to(DiscardSink())
    job_id = env.execute().job_id
    assert not (tmp_path / "root").exists()
    assert said(job_id) == []


def test_pages_go_on_behind_their_cursors(tmp_path: Path) -> None:
    env = environment(tmp_path, rate_limit="0")
    env.from_collection(range(50)).map(lambda n: print("n", n)).name("p").sink_to(DiscardSink())
    logs, cursor, found = JobLogs(env.execute().job_id), None, []
    while True:
        page = logs.read(cursor, LogFilter(operator="p"), limit=7)
        found += [entry["message"] for entry in page.entries]
        cursor = page.cursor
        assert len(page.entries) <= 7
        if not page.more:
            break
    assert found == [f"n {n}" for n in range(50)]
    assert [e["message"] for e in logs.tail(2, LogFilter(operator="p")).entries] == ["n 48", "n 49"]
    with pytest.raises(ConfigurationError, match="cursor"):
        logs.read("bm9uZQ==")
    for wrong in ("", "../x", "a/b"):
        with pytest.raises(ConfigurationError):
            JobLogs(wrong)
