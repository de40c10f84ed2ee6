"""How a coordinator ends: whatever fails then, who waits for the job is told of its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from strom.core.ids import OperatorId
from strom.core.job_status import JobStatus
from strom.engine.hosts import ray_coordinator
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.ray_coordinator import JobCoordinator

OUTCOME = JobOutcome("a1", "one", JobStatus.FINISHED, None, 0.0, 0, 0, {})


def broken(*arguments: Any) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("what", ["driver", "prometheus", "reporter", "cluster", "log"])
def test_what_cannot_be_released_keeps_no_end_from_being_told(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator: Any = JobCoordinator("a1")
    closed: list[str] = []

    def part(name: str) -> SimpleNamespace:
        return SimpleNamespace(
            close=broken if name == what else lambda: closed.append(name),
            start=lambda: None,
            ended=True,
            outcome=lambda: OUTCOME,
        )

    names = ("driver", "prometheus", "reporter", "cluster")
    for name in names:
        setattr(coordinator, f"_{name}", part(name))
    coordinator._log = None
    if what == "log":
        monkeypatch.setattr(ray_coordinator, "close_log", broken)
        with pytest.raises(OSError, match="full"):
            coordinator._run()
    else:
        coordinator._run()
    assert closed == [name for name in names if name != what]

    async def asked() -> None:
        coordinator._started.set()
        assert await coordinator.outcome(0.0) == OUTCOME
        assert (await coordinator.published(OperatorId("o"), 0, 0.0)).closed

    asyncio.run(asked())
