"""Submissions that break off: what becomes of the job then, with the dispatcher and the program."""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import replace
from typing import Any

import pytest
from chaos_kit import config, environment
from dispatcher_kit import RECORD, World, run
from named_actors import NamedActors
from strom import DiscardSink
from strom.cluster import session_host
from strom.cluster.new_jobs import rescaled
from strom.cluster.records import JobRecord, Phase
from strom.cluster.session_client import SessionJobClient
from strom.cluster.session_host import SessionHost
from strom.cluster.slot_pool import shape_of
from strom.core.errors import ConfigurationError, JobCancelledError, TransportError
from strom.core.job_status import JobStatus
from strom.engine.graph.model import JobGraph
from strom.engine.hosts.coordinator_answers import Rescaled
from strom.engine.hosts.launch import Submission

GIVEN = pickle.dumps(Submission("a1", b"graph"))


# --- the dispatcher -------------------------------------------------------------------------------


def test_who_gives_up_while_a_job_is_written_down_leaves_none(world: World) -> None:
    async def test() -> None:
        d = world.dispatcher()
        write, begun, go_on = d._ledger._registry.submit, asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slowly(record: JobRecord, submission: bytes) -> None:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
            write(record, submission)

        d._ledger._registry.submit = slowly  # type: ignore[method-assign]
        submitting = asyncio.create_task(d.submit(RECORD, GIVEN))
        await begun.wait()
        with pytest.raises(ConfigurationError, match="no job 'a1'"):
            await d.cancel("a1")
        go_on.set()
        with pytest.raises(JobCancelledError, match="before it was there"):
            await submitting
        await none_left(world)

    run(world, test)


def test_a_submission_that_comes_after_its_cancel_is_refused(world: World) -> None:
    """Ray may hand over the calls of one program in another order than they were made in."""

    async def test() -> None:
        d = world.dispatcher()
        with pytest.raises(ConfigurationError):
            await d.cancel("a1")
        with pytest.raises(JobCancelledError):
            await d.submit(RECORD, GIVEN)
        await none_left(world)

    run(world, test)


def test_a_job_that_was_cancelled_is_not_started_by_who_asks_twice(world: World) -> None:
    """The second call is being written down when the job, known by the first, is cancelled."""

    async def test() -> None:
        d = world.dispatcher()
        write, begun, go_on = d._ledger._registry.submit, asyncio.Event(), threading.Event()
        loop, calls = asyncio.get_running_loop(), iter(range(2))

        def slowly(record: JobRecord, submission: bytes) -> None:
            write(record, submission)
            if next(calls):
                loop.call_soon_threadsafe(begun.set)
                assert go_on.wait(60)

        d._ledger._registry.submit = slowly  # type: ignore[method-assign]
        large = replace(RECORD, cpus=40.0)  # it waits
        first, second = (asyncio.create_task(d.submit(large, GIVEN)) for _ in range(2))
        await first
        await begun.wait()
        await d.cancel("a1")
        go_on.set()
        await second
        await d._agenda.done()
        record, _ = await d.job("a1")
        assert (record.status, world.made) == (JobStatus.CANCELED, [])

    run(world, test)


async def none_left(world: World) -> None:
    """Neither this dispatcher nor the next one has the job."""
    (d,) = world.dispatchers
    for one in (d, world.dispatcher()):
        assert await one.jobs() == []
        await one._agenda.done()
    assert world.made == []
    assert list(d._ledger._registry.records()) == []


# --- the program ----------------------------------------------------------------------------------


class Client:
    """A `DispatcherClient` that answers what it is given, or raises that."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.told: list[str] = []

    def submit(self, record: JobRecord, submission: bytes) -> None:
        self.record = record
        self._answer("submit")

    def waiting(self, job_id: str, timeout: float, said: str) -> tuple[JobRecord, str]:
        self._answer("waiting")
        fields = vars(self.record) | {"phase": Phase.RUNNING, "status": JobStatus.RUNNING}
        return JobRecord(**fields), ""

    def cancel(self, job_id: str) -> None:
        assert job_id == self.record.job_id
        self._answer("cancel")

    def _answer(self, call: str) -> None:
        self.told.append(call)
        if (error := self.answers.get(call)) is not None:
            raise error


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those that there are, by name."""
    there = NamedActors(monkeypatch).actors
    monkeypatch.setattr(
        session_host, "submission_of", lambda graph, job_id: Submission(job_id, b"graph")
    )
    return there


def started(
    monkeypatch: pytest.MonkeyPatch, client: Client, attached: bool | None = None
) -> SessionJobClient:
    monkeypatch.setattr(session_host, "find", lambda: client)
    found = SessionHost()._start(graph(attached=attached), "one", "a1")
    assert isinstance(found, SessionJobClient)
    return found


def graph(**settings: Any) -> JobGraph:
    env = environment(config(**settings))
    env.from_collection([1]).sink_to(DiscardSink())
    return env.get_job_graph("one")


@pytest.mark.parametrize("call", ["submit", "waiting"])
@pytest.mark.parametrize("untold", [None, ConfigurationError("no such job")])
def test_a_submission_that_is_interrupted_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
    actors: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    call: str,
    untold: Exception | None,
) -> None:
    client = Client(**{call: KeyboardInterrupt(), "cancel": untold})
    with pytest.raises(KeyboardInterrupt):
        started(monkeypatch, client)
    assert client.told[-2:] == [call, "cancel"]
    assert capsys.readouterr().err == ""


def test_one_that_is_interrupted_as_it_is_complete_is_cancelled_too(
    monkeypatch: pytest.MonkeyPatch, actors: dict[str, Any]
) -> None:
    actors["strom-job-a1"] = object()

    def interrupted(job_id: str, coordinator: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session_host, "Attachment", interrupted)
    client = Client()
    with pytest.raises(KeyboardInterrupt):
        started(monkeypatch, client, attached=True)
    assert client.told == ["submit", "waiting", "cancel"]


@pytest.mark.parametrize("attached", [False, True])
def test_who_cannot_cancel_says_what_may_start_later(
    monkeypatch: pytest.MonkeyPatch,
    actors: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    attached: bool,
) -> None:
    gone = TransportError("the dispatcher is gone")
    client = Client(waiting=gone, cancel=gone)
    with pytest.raises(TransportError):
        started(monkeypatch, client, attached=attached)
    said = capsys.readouterr().err
    assert ("`strom cancel a1`" in said) is not attached  # who is attached ends by itself


def test_a_coordinator_that_is_gone_again_is_no_end_of_the_submission(
    monkeypatch: pytest.MonkeyPatch, actors: dict[str, Any]
) -> None:
    client = Client()
    found = started(monkeypatch, client)
    assert client.told == ["submit", "waiting"]
    assert (str(found.get_job_id()), found.ends_with_program) == ("a1", False)


# --- what the session is given --------------------------------------------------------------------


def test_a_rescaled_job_is_as_it_was_but_for_its_slots() -> None:
    old = JobRecord(
        "a1", "one", 2.0, 2, False, 60, 1, checkpoints="s3://b/c", shape="two", idle_ms=50
    )
    slot = {"CPU": 1.0, "GPU": 0.5}
    before = Submission("a1", b"graph", packages={"pip": ["x"]})
    record, submission = rescaled(old, before, Rescaled(b"rescaled", [slot] * 3))
    assert (record.needs, record.slots) == ({"CPU": 3.0, "GPU": 1.5}, 3)
    assert (record.follows, record.shape) == ("a1", shape_of([slot] * 3))
    kept = ("name", "attached", "patience_ms", "checkpoints", "idle_ms")
    assert [getattr(record, name) for name in kept] == [getattr(old, name) for name in kept]
    assert submission == Submission(record.job_id, b"rescaled", packages={"pip": ["x"]})
    assert record.job_id != "a1"
