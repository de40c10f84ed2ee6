"""The account of jobs that are over: how many of them are kept, and which."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dispatcher_kit import RECORD, outcome
from strom.cluster import ledger as module
from strom.cluster.ledger import RECENT_S, Ledger
from strom.cluster.records import Phase
from strom.cluster.registry import Registry
from strom.core.clock import VirtualClock
from strom.core.errors import CheckpointError
from strom.core.job_status import JobStatus

RECENT_MS = round(RECENT_S * 1000)


async def over(ledger: Ledger, job_id: str) -> None:
    record = replace(RECORD, job_id=job_id, phase=Phase.ENDED, status=JobStatus.FINISHED)
    last, view = outcome(JobStatus.FINISHED)
    ledger.ends(record)
    await ledger.archive(record, replace(last, accumulators=(("hits", "map", b"sealed"),)), view)
    await ledger.keep_lines(job_id)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def files(folder: Path) -> dict[str, set[str]]:
    """The jobs of which something is in each folder of a registry."""
    return {one.name: {path.stem for path in one.iterdir()} for one in folder.iterdir()}


def test_those_that_ended_first_go_and_all_that_is_known_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_last_lines", lambda job_id: [{"text": job_id}])
    monkeypatch.setattr(module, "REMOVAL_S", 0.001)
    monkeypatch.setattr(module, "RETRY_S", 0.001)

    async def test() -> None:
        clock = VirtualClock()
        former = Ledger(str(tmp_path), clock)
        await over(former, "a")
        former.close()
        clock.advance_ms(RECENT_MS)
        ledger = Ledger(str(tmp_path), clock, retained=2)
        for job_id in "bcd":
            await over(ledger, job_id)
            clock.advance_ms(RECENT_MS // 4)
        looks = 0

        def too_many(count: Callable[[], list[str]] = ledger._too_many) -> list[str]:
            nonlocal looks
            looks += 1
            return count()

        monkeypatch.setattr(ledger, "_too_many", too_many)
        removing = asyncio.create_task(ledger.remove_old())
        await until(lambda: looks > 2)
        assert ledger.archived == 4, "those that ended a moment ago stay, however many"

        clock.advance_ms(RECENT_MS // 4)  # "a" was found, and "b" ended, so long ago
        await until(lambda: ledger.archived == 2)
        kept = {"c", "d"}
        names = ("history", "views", "logs", "accumulators")
        assert files(tmp_path) == dict.fromkeys(names, kept)
        assert [one.job_id for one in ledger.last(10)] == ["d", "c"]
        assert (ledger.is_over("b"), await ledger.ended("b")) == (False, None)
        assert await ledger.outcome("b") is None

        remove, failures = ledger._registry.remove, 0

        def failing(job_id: str) -> None:
            nonlocal failures
            failures += 1
            if failures < 3:
                raise CheckpointError("the disk is away")
            remove(job_id)

        monkeypatch.setattr(ledger._registry, "remove", failing)
        await over(ledger, "e")
        clock.advance_ms(RECENT_MS)
        await until(lambda: ledger.archived == 2)
        assert failures == 3
        assert files(tmp_path)["history"] == {"d", "e"}
        removing.cancel()
        ledger.close()

    asyncio.run(test())


def test_a_removal_that_broke_off_is_done_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(str(tmp_path))
    registry.submit(RECORD, b"")
    over = replace(RECORD, phase=Phase.ENDED, status=JobStatus.FINISHED)
    registry.archive(over, {}, {"id": "a1"})
    registry.keep_lines("a1", [])
    registry.submit(RECORD, b"")  # as an archiving that broke off leaves it
    remove = registry._remove

    def failing(path: str) -> None:
        if "history" in path:
            raise PermissionError(path)
        remove(path)

    monkeypatch.setattr(registry, "_remove", failing)
    with pytest.raises(CheckpointError, match="cannot remove"):
        registry.remove("a1")
    assert registry.history() == ["a1"]
    assert registry.view("a1") is None
    monkeypatch.undo()
    registry.remove("a1")
    registry.remove("a1")
    assert list(registry.records()) == []
    assert not any(files(tmp_path).values())


def test_a_damaged_job_of_the_history_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(str(tmp_path))
    for job_id in "abc":
        record = replace(RECORD, job_id=job_id, phase=Phase.ENDED, status=JobStatus.FINISHED)
        registry.archive(record, {})
    (tmp_path / "history" / "b.json").write_text('{"record": {"phase": "PAUSED"}}')

    async def test() -> None:
        ledger = Ledger(str(tmp_path), VirtualClock())
        await ledger.recall()
        assert sorted(one.job_id for one in ledger.last(10)) == ["a", "c"]
        with pytest.raises(CheckpointError, match=r"b\.json: not the record"):
            await ledger.ended("b")
        ledger.close()

    asyncio.run(test())
    assert "job b of the history cannot be read" in caplog.text


def test_nodes_that_do_not_tell_last_lines_hold_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many jobs have just ended as the loop has threads for all the rest."""
    go_on = threading.Event()

    def hangs(job_id: str) -> list[dict[str, str]]:
        assert go_on.wait(60)
        return []

    monkeypatch.setattr(module, "_last_lines", hangs)

    async def test() -> None:
        ledger = Ledger(str(tmp_path), VirtualClock())
        reading = [asyncio.create_task(ledger.keep_lines(f"{n}")) for n in range(40)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(10):
                await asyncio.to_thread(int)
        finally:
            go_on.set()
        await asyncio.gather(*reading)
        ledger.close()

    asyncio.run(test())
