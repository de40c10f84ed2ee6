"""A dispatcher with coordinators and a cluster that a test plays."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from strom.cluster import dispatcher, ledger, runs
from strom.cluster.dispatcher import Dispatcher
from strom.cluster.records import JobRecord, Phase
from strom.core.job_status import JobStatus
from strom.engine.hosts.coordinator_answers import Followed
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.job_record import Begun
from strom.engine.hosts.kept_slots import KeptSlots
from strom.engine.hosts.launch import Submission

RECORD = JobRecord("a1", "one", 2.0, 2, False, 60_000, 1, checkpoints="memory://x")

NEXT = replace(RECORD, job_id="a2", cpus=4.0, submitted_ms=2, follows="a1")
"""Takes all that there is."""


def outcome(status: JobStatus, error: str | None = None) -> tuple[JobOutcome, dict[str, Any]]:
    last = JobOutcome("a1", "one", status, error, 17.0, 3, 1, {"state": status.value})
    return last, {"id": "a1", "status": status.value, "tasks": [{"status": "FAILED"}]}


class Coordinator:
    """Calls as of an actor's handle, which go on whether or not somebody awaits them. `ends`: what
    its run comes to."""

    def __init__(self, failure: Exception | None) -> None:
        self.first_attempt: int | None = None
        self.failure = failure
        self.ends: asyncio.Future[tuple[JobOutcome, dict[str, Any] | None]] = (
            asyncio.get_running_loop().create_future()
        )
        self.told: list[str] = []
        self.heard = False
        """Whether the dispatcher knows of the end."""
        self.hearing = False
        """Whether it is being told that."""
        self.hears = asyncio.Event()
        """When it is told; at once, unless a test clears it."""
        self.hears.set()
        self.savepoints: list[tuple[str, int]] = []
        self.term = 0
        self.others_wait = False
        self.followers = 0
        """How many calls have begun to wait for what is new."""
        self.claimed: str | None = None
        self.farewell: Callable[[JobOutcome], None] = lambda outcome: None
        self.answer: tuple[str | None, str | None] = ("/s/1", None)
        """To who wants it stopped with a savepoint."""
        self.deaf: set[str] = set()
        """Calls that do not arrive."""
        for name in ("start", "detach", "followed", "end_is_heard", "cancel", "savepoint"):
            setattr(self, name, SimpleNamespace(remote=partial(self._called, name)))

    def _called(self, name: str, *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if name in self.deaf:
            return loop.create_future()
        return loop.create_task(getattr(self, f"_{name}")(*arguments))

    async def _start(self, begun: Begun) -> None:
        assert begun.payload == b"graph"
        self.first_attempt, self.claimed = begun.first_attempt, begun.claimed
        if self.failure is not None:
            raise self.failure

    async def _detach(self) -> None:
        self.told.append("detach")

    async def _followed(
        self,
        timeout: float,
        known: int,
        added: Mapping[str, float] | None = None,
        others_wait: bool = False,
        lacks: bool = False,
    ) -> Followed:
        self.others_wait = others_wait
        if self.savepoints[known:]:
            return Followed(self.savepoints[known:], term=self.term)
        self.followers += 1
        return Followed([], *await asyncio.shield(self.ends), self.term)

    async def _end_is_heard(self) -> None:
        self.hearing = True
        await self.hears.wait()
        self.heard = True

    async def _savepoint(
        self, directory: str | None, stop: str, successor: str
    ) -> tuple[str | None, str | None]:
        self.told.append(f"{stop} into {directory}")
        if self.answer[0] is not None:
            self.ends.set_result(outcome(JobStatus.FINISHED))
        return self.answer

    async def _cancel(self) -> None:
        self.told.append("cancel")
        if self.told.count("cancel") == 1:
            raise ActorUnavailableError("for a while", None)
        self.ends.set_result(outcome(JobStatus.CANCELED))


class World:
    """What a dispatcher finds around it, with a registry in `folder`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = str(folder)
        self.made: list[Coordinator] = []
        self.dispatchers: list[Dispatcher] = []
        self.failure: Exception | None = None
        self.deaf: set[str] = set()
        """Calls that do not arrive at coordinators that are made from now on."""
        self.all_left = False
        """Whether the coordinators are gone."""
        self.savepoints: list[tuple[str, int]] = []
        self.slots: list[str] = []
        """The names of slots that there are."""
        monkeypatch.setattr(runs, "make_coordinator", self.make)
        monkeypatch.setattr(runs, "withdraw", lambda job_id: None)
        monkeypatch.setattr(dispatcher.ray, "cluster_resources", lambda: {"CPU": 4.0})
        monkeypatch.setattr(runs, "find_coordinator", self.find)
        monkeypatch.setattr(runs, "PAUSE_S", 0.01)
        monkeypatch.setattr(ledger, "RETRY_S", 0.01)
        monkeypatch.setattr(
            dispatcher,
            "slots_there",
            lambda prefix: [one for one in self.slots if one.startswith(prefix)],
        )
        monkeypatch.setattr(dispatcher, "release", self.release)
        monkeypatch.setattr(dispatcher, "TICK_S", 0.01)
        monkeypatch.setattr(dispatcher, "LOOK_S", 0.01)

    def make(
        self,
        submission: Submission,
        slots: KeptSlots | None,
        farewell: Callable[[JobOutcome], None],
    ) -> Coordinator:
        assert submission.payload == b"graph"
        self.made.append(Coordinator(self.failure))
        self.made[-1].deaf = set(self.deaf)
        self.made[-1].savepoints = list(self.savepoints)
        self.made[-1].farewell = farewell
        return self.made[-1]

    def find(self, job_id: str) -> Coordinator:
        if not self.made or self.all_left:
            raise ValueError
        return self.made[-1]

    def release(self, group: str) -> None:
        if group in self.slots:
            self.slots.remove(group)

    def dispatcher(self, **options: Any) -> Dispatcher:
        self.dispatchers.append(Dispatcher(self.folder, **options))
        return self.dispatchers[-1]

    def kill(self, dispatcher: Dispatcher) -> None:
        """It does and stores nothing more."""
        self.dispatchers.remove(dispatcher)
        for task in dispatcher._agenda._tasks:
            task.cancel()
        dispatcher._ledger.close()

    async def submitted(self) -> Dispatcher:
        made = self.dispatcher()
        await made.submit(RECORD, pickle.dumps(Submission("a1", b"graph")))
        return made


def run(world: World, test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await asyncio.wait_for(test(), 60)
        finally:
            for dispatcher in world.dispatchers:
                await dispatcher.close()

    asyncio.run(whole())


async def phase(dispatcher: Dispatcher, wanted: Phase) -> JobRecord:
    while (found := await dispatcher.job("a1"))[0].phase is not wanted:
        await asyncio.sleep(0.001)
    return found[0]
