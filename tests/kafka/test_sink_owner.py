"""Whose a transactional id prefix is: the last job that took it over commits, the former is told
so, and a point that is restored twice is warned of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from kafka_sink_kit import (
    ScriptedCluster,
    SinkBroker,
    context,
    eventually,
    exactly_once,
    prepare,
    put,
    scripted_writer,
    values,
)
from strom.api.connectors.base import OutputClaim
from strom.connectors.kafka import KafkaSink
from strom.connectors.kafka.librdkafka import Failure
from strom.connectors.kafka.owner import OwnerWatch, take
from strom.core.errors import ConnectorError, FencedError, RetryableCommitError
from strom.operators.base import run_to_end

pytestmark = pytest.mark.kafka

NUMBERS = itertools.count()


def claim(job: str, origin: tuple[str, int] | None = None) -> OutputClaim:
    return OutputClaim(job, "copy", "sink", "sink-id", f"token-{job}", "here", origin)


class Job:
    """A sink as one job has it."""

    def __init__(self, sink: KafkaSink, claim: OutputClaim, restored: Any = None) -> None:
        self.said = list(sink.take_over(claim))
        told = context(attempt=claim.epoch, job=claim.job_id)
        self.token = sink.writers_token(claim)
        made = replace(told, token=self.token)
        self.writer = sink.create_writer(made)
        if restored is not None:
            run_to_end(self.writer.recover(restored))

    def prepared(self, checkpoint: int, value: str) -> list[Any]:
        put(self.writer, value)
        return prepare(self.writer, checkpoint)

    def publishes(self, checkpoint: int, value: str) -> None:
        run_to_end(self.writer.commit(self.prepared(checkpoint, value)))


@pytest.fixture
def jobs(broker: SinkBroker) -> Iterator[Any]:
    made: list[Job] = []
    topic, prefix = broker.topic(), f"owned-{next(NUMBERS)}"

    def make(claim: OutputClaim, restored: Any = None) -> Job:
        one = Job(exactly_once(broker.servers, topic, prefix), claim, restored)
        made.append(one)
        return one

    make.seen = lambda: sorted((v or b"").decode() for v in values(broker.servers, topic))  # type: ignore[attr-defined]
    yield make
    for one in made:
        one.writer.close()


def test_the_last_one_publishes_and_a_point_restored_twice_is_warned_of(jobs: Any) -> None:
    first = jobs(claim("a"))
    first.publishes(1, "one")
    held = first.prepared(2, "two")
    late = first.prepared(3, "three")
    second = jobs(claim("b", ("a", 2)), held)
    assert second.said == []
    second.publishes(3, "three")
    with pytest.raises(FencedError, match="by job a: another job, or another coordinator of this"):
        run_to_end(first.writer.commit(late))
    late = second.prepared(4, "four")
    third = jobs(claim("c", ("a", 2)), held)
    (said,) = third.said
    assert "another job has started from checkpoint 2 of job a before" in said
    with pytest.raises(FencedError):
        run_to_end(second.writer.recover(late))
    assert jobs.seen() == ["one", "three", "two"]


def test_a_coordinator_that_comes_back_goes_on_with_the_writers_that_run(jobs: Any) -> None:
    """It registers nothing anew, as long as nobody else has done so."""
    first = jobs(claim("b", ("a", 2)))
    first.publishes(3, "three")
    shown = frozenset({first.token, "0:0"})
    again = jobs(replace(claim("b", ("a", 2)), epoch=1, shown=shown))
    assert (again.said, again.token) == ([], first.token)
    first.publishes(4, "four")
    other = jobs(claim("c", ("b", 4)))
    last = jobs(replace(claim("b"), epoch=2, shown=shown))
    assert last.token not in (first.token, other.token)
    for fenced in (first, other):
        with pytest.raises(FencedError):
            fenced.publishes(5, "five")
    last.publishes(5, "five")
    expected = ["five", "four", "three"]
    assert eventually(lambda: len(found := jobs.seen()) > 2 and found) == expected


def test_a_coordinator_that_comes_back_goes_on_under_its_job(jobs: Any) -> None:
    """It fences the one before, and is warned of nothing."""
    first = jobs(claim("b", ("a", 2)))
    first.publishes(3, "three")
    late = first.prepared(4, "four")
    again = jobs(replace(claim("b", ("a", 2)), epoch=1), restored=[])
    assert again.said == []
    again.publishes(4, "four")
    with pytest.raises(FencedError):
        run_to_end(first.writer.commit(late))
    assert eventually(lambda: len(found := jobs.seen()) > 1 and found) == ["four", "three"]


@pytest.mark.parametrize("when", ["before", "while it looks"])
def test_who_is_fenced_ends_nothing_of_its_owner(when: str) -> None:
    """Not even what it sees open before it has published anything, and so heard of the other."""
    scripted = ScriptedCluster()
    late = OwnerWatch(scripted.connect, "p", "a", take(scripted, "p", claim("a"))[0])
    listed = scripted.list

    def taken_over(states: Any) -> list[str]:
        scripted.list = listed  # type: ignore[method-assign]
        told, _ = take(scripted, "p", claim("b"))
        owner = OwnerWatch(scripted.connect, "p", "b", told)
        owners.append(scripted_writer(scripted, job="b", owner=owner))
        put(owners[0], b"one")
        return listed(states)

    owners: list[Any] = []
    if when == "before":
        taken_over([])
    else:
        scripted.list = taken_over  # type: ignore[method-assign]
    writer = scripted_writer(scripted, job="a", owner=late)

    def publish() -> None:
        put(writer, b"lost")
        run_to_end(writer.commit(prepare(writer)))

    with pytest.raises((FencedError, Failure), match=r"fenced|taken over"):
        publish()
    run_to_end(owners[0].commit(prepare(owners[0])))
    assert scripted.log == [b"one"]


def test_a_cluster_that_does_not_say_is_asked_again() -> None:
    """By the next try of the commit, over another connection."""
    scripted = ScriptedCluster()
    token, _ = take(scripted, "p", claim("a"))
    answers = [ConnectorError("no answer"), None, None]

    @contextmanager
    def connect(going: Callable[[], bool]) -> Iterator[ScriptedCluster]:
        if (error := answers.pop(0)) is not None:
            raise error
        yield scripted

    watch = OwnerWatch(connect, "p", "a", token)
    with pytest.raises(RetryableCommitError, match="nothing is committed now: no answer"):
        watch.check()
    watch.check()
    watch.check()
    assert len(answers) == 1, "the connection is kept"
    take(scripted, "p", claim("b"))
    with pytest.raises(FencedError):
        watch.check()
    watch.close()
    again = replace(claim("a"), shown=frozenset({token}))
    assert take(scripted, "p", again)[0] != token
    scripted.ids.clear()
    OwnerWatch(connect, "p", "a", token).check()  # the cluster has forgotten whose it was
    assert take(scripted, "p", again) == (token, [])
    assert scripted.ids == {}
