"""Which transactions are whose, what became of them, and that each record is committed once:
on a scripted cluster, with seeds."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from kafka_sink_kit import ScriptedCluster, prepare, put, scripted_writer
from strom.connectors.kafka.librdkafka import Failure
from strom.connectors.kafka.transactions import (
    Described,
    Fate,
    TransactionCommittable,
    TransactionNames,
    fate,
)
from strom.core.errors import ConnectorError

MINE = TransactionCommittable("p-0-x", 7, 3, 10)


@pytest.mark.parametrize(
    ("state", "producer", "epoch", "expected"),
    [
        ("Ongoing", 7, 3, Fate.OPEN),
        ("PrepareCommit", 7, 3, Fate.COMMITTED),
        ("CompleteCommit", 7, 3, Fate.COMMITTED),
        ("PrepareAbort", 7, 4, Fate.ABORTED),
        ("CompleteAbort", 7, 4, Fate.ABORTED),
        ("CompleteAbort", 7, 3, Fate.ABORTED),
        ("Empty", 7, 4, Fate.ABORTED),
        ("Ongoing", 7, 4, Fate.ABORTED),
        ("Ongoing", 8, 3, Fate.ABORTED),
    ],
)
def test_fates(state: str, producer: int, epoch: int, expected: Fate) -> None:
    assert fate(MINE, Described("p-0-x", state, producer, epoch)) is expected
    assert fate(MINE, None) is Fate.FORGOTTEN


def names(**given: Any) -> TransactionNames:
    told = {
        "prefix": "p",
        "job_id": "j",
        "operator_id": "o",
        "subtask": 0,
        "parallelism": 1,
        "attempt": 0,
    }
    return TransactionNames(**{**told, **given})


def test_no_id_is_used_twice() -> None:
    every = [names(subtask=s, attempt=a) for s in range(3) for a in range(3)]
    every += [names(), names(job_id="k"), names(operator_id="q")]
    ids = [one.next() for one in every for _ in range(4)]
    assert len(set(ids)) == len(ids)


def test_leftovers_are_of_dead_attempts_and_of_former_subtasks_of_ones_own() -> None:
    old = [names(subtask=s, parallelism=4, attempt=1).next() for s in range(4)]
    new = [names(subtask=s, parallelism=3, attempt=2) for s in range(3)]
    owners = [[i for i, one in enumerate(new) if one.is_left_over(name)] for name in old]
    assert owners == [[0], [1], [2], [0]]
    siblings = [one.next() for one in new]
    assert not any(one.is_left_over(name) for one in new for name in siblings)
    later = names(subtask=0, attempt=3).next()
    assert not new[0].is_left_over(later)
    other_job = names(job_id="k", attempt=9).next()
    assert new[0].is_left_over(other_job)
    assert not new[0].is_left_over(names(prefix="pp").next())
    assert not new[0].is_left_over("p-0")
    assert not names(prefix="a.b").is_left_over(names(prefix="aXb", job_id="k").next())


def test_what_is_committed_is_committed_again_without_harm() -> None:
    cluster = ScriptedCluster()
    first = scripted_writer(cluster)
    put(first, b"a", b"b")
    made = prepare(first)
    first.commit(made)
    first.commit(made)
    second = scripted_writer(cluster, attempt=1)
    second.recover(made)
    second.recover(made)
    assert cluster.log == [b"a", b"b"]


def test_a_barrier_without_records_makes_no_transaction() -> None:
    cluster = ScriptedCluster()
    writer = scripted_writer(cluster)
    assert prepare(writer, 1) == []
    put(writer, b"a")
    assert len(prepare(writer, 2)) == 1
    assert prepare(writer, 3) == []
    assert len(cluster.open_transactions()) == 1


def test_a_transaction_that_the_cluster_dropped_is_an_error() -> None:
    cluster = ScriptedCluster()
    writer = scripted_writer(cluster)
    put(writer, b"a", b"b")
    [made] = prepare(writer)
    cluster.expire(made.transactional_id)
    with pytest.raises(ConnectorError, match="2 records of a completed checkpoint cannot be"):
        writer.commit([made])
    with pytest.raises(ConnectorError, match=r"transaction\.timeout\.ms=900000"):
        scripted_writer(cluster, attempt=1).recover([made])
    assert cluster.log == []


def test_a_transaction_that_the_cluster_forgot_is_an_error() -> None:
    cluster = ScriptedCluster()
    writer = scripted_writer(cluster)
    put(writer, b"a")
    [made] = prepare(writer)
    del cluster.ids[made.transactional_id]
    with pytest.raises(ConnectorError, match="does not know it any more"):
        scripted_writer(cluster, attempt=1).recover([made])


def test_a_time_out_before_the_checkpoint_completes_loses_nothing() -> None:
    #  a |1 (never completes) ... time-out ... |2 fails, and the job goes back behind neither
    cluster = ScriptedCluster()
    writer = scripted_writer(cluster)
    put(writer, b"a")
    [made] = prepare(writer, 1)
    writer._prepared[made.transactional_id].age_s = 899.0
    assert prepare(writer, 2) == []
    writer._prepared[made.transactional_id].age_s = 901.0
    with pytest.raises(ConnectorError, match="has waited 901 s for its checkpoint to complete"):
        writer.prepare_commit(3)


def test_lost_transactions_are_skipped_only_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScriptedCluster()
    writer = scripted_writer(cluster)
    put(writer, b"lost")
    [lost] = prepare(writer, 1)
    put(writer, b"kept")
    [kept] = prepare(writer, 2)
    cluster.expire(lost.transactional_id)
    scripted_writer(cluster, attempt=1, skip_lost=True).recover([lost, kept])
    assert cluster.log == [b"kept"]
    assert "on_lost_transaction='skip'" in caplog.text


def test_one_subtask_waits_for_nobody_before_it_fences() -> None:
    cluster = ScriptedCluster()
    first = scripted_writer(cluster)
    put(first, b"a")
    [made] = prepare(first, 1)
    put(first, b"not in the checkpoint")
    second = scripted_writer(cluster, attempt=1)
    second.recover([made])
    assert cluster.open_transactions() == []
    assert cluster.log == [b"a"]
    with pytest.raises(Exception, match="fenced"):
        put(first, b"zombie")
    assert len(cluster.fenced) == 2, "the transaction and the spare of the first attempt"
    third = scripted_writer(cluster, attempt=2)
    third.recover([])
    assert len(cluster.fenced) == 3, "of the second attempt the spare; the others are fenced"


def test_several_subtasks_fence_behind_the_first_checkpoint_of_their_attempt() -> None:
    cluster = ScriptedCluster()
    old = [scripted_writer(cluster, s, 2) for s in range(2)]
    for writer in old:
        put(writer, b"a")
    made = [one for writer in old for one in prepare(writer, 1)]
    new = [scripted_writer(cluster, s, 2, attempt=1) for s in range(2)]
    new[0].recover([])
    put(new[0], b"b")
    prepare(new[0], 2)
    assert cluster.fenced == [], "the other one has not recovered yet"
    new[1].recover(made)
    assert cluster.log == [b"a", b"a"]
    for writer in new:
        writer.commit([])
    assert len(cluster.fenced) == 2, "the spares of the old attempt"


def test_a_job_that_starts_anew_ends_what_another_left_with_its_prefix() -> None:
    cluster = ScriptedCluster()
    put(scripted_writer(cluster, job="before"), b"a")
    writer = scripted_writer(cluster, job="now")
    assert prepare(writer) == []
    assert cluster.open_transactions() == []


def test_closing_aborts_what_no_barrier_has_and_keeps_what_one_has() -> None:
    cluster = ScriptedCluster()
    writer = scripted_writer(cluster)
    put(writer, b"prepared")
    [made] = prepare(writer)
    put(writer, b"open")
    writer.close()
    assert cluster.open_transactions() == [made.transactional_id]
    scripted_writer(cluster, attempt=1).recover([made])
    assert cluster.log == [b"prepared"]


class Job:
    """Subtasks of a sink over attempts, rescaled at will; what a coordinator would remember.

    Records are numbers; those behind the last completed checkpoint are written again by the next
    attempt. Invariant: `completed` is what a restore starts from."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = ScriptedCluster()
        self.attempt = -1
        self.checkpoint = 0
        self.completed: tuple[int, list[TransactionCommittable]] = (0, [])
        self.zombies: list[Any] = []
        self.start()

    def start(self) -> None:
        """A new attempt: committables dealt out at random; some subtasks write before others have
        recovered."""
        self.attempt += 1
        self.parallelism = self.random.choice([1, 2, 3, 4])
        self.position, committables = self.completed
        self.writers = [
            scripted_writer(self.cluster, s, self.parallelism, self.attempt)
            for s in range(self.parallelism)
        ]
        self.pending: list[list[tuple[int, list[TransactionCommittable]]]] = [
            [] for _ in self.writers
        ]
        dealt: list[list[TransactionCommittable]] = [[] for _ in self.writers]
        for one in committables:
            self.random.choice(dealt).append(one)
        ready: list[int] = []
        for subtask in self.random.sample(range(self.parallelism), self.parallelism):
            if self.attempt > 0:
                self.writers[subtask].recover(dealt[subtask])
            ready.append(subtask)
            if self.random.random() < 0.5:
                self.write(self.random.choice(ready))

    def write(self, subtask: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            put(self.writers[subtask], str(self.position).encode())
            self.position += 1

    def take_checkpoint(self) -> None:
        """With crashes anywhere: before, between and behind the subtasks' parts."""
        self.checkpoint += 1
        for subtask, writer in enumerate(self.writers):
            if self.random.random() < 0.05:
                return self.crash()
            self.pending[subtask].append((self.checkpoint, prepare(writer, self.checkpoint)))
        if self.random.random() < 0.2:
            return None  # aborted: the next one takes these along
        every = [one for mine in self.pending for _, made in mine for one in made]
        self.completed = (self.position, every)
        for subtask in self.random.sample(range(self.parallelism), self.parallelism):
            if self.random.random() < 0.1:
                return self.crash()
            for n, (_, made) in enumerate(self.pending[subtask]):
                self.writers[subtask].commit(made)
                if self.random.random() < 0.05:
                    del self.pending[subtask][: n + 1]
                    return self.crash()
            self.pending[subtask] = []
        return None

    def crash(self) -> None:
        """Some are closed, others go on as zombies."""
        for writer in self.writers:
            if self.random.random() < 0.5:
                writer.close()
            else:
                self.zombies.append(writer)
        self.start()

    def disturb(self) -> None:
        """A zombie writes once more."""
        zombie = self.zombies.pop(self.random.randrange(len(self.zombies)))
        with suppress(Failure):  # it is fenced
            put(zombie, b"zombie")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.6:
                self.write(self.random.randrange(self.parallelism))
            elif choice < 0.85:
                self.take_checkpoint()
            elif choice < 0.93:
                self.crash()
            elif self.zombies:
                self.disturb()

    def finish(self) -> None:
        """A checkpoint of all that is written, and another that ends leftovers."""
        for _ in range(2):
            self.checkpoint += 1
            made = [prepare(writer, self.checkpoint) for writer in self.writers]
            for subtask, writer in enumerate(self.writers):
                for _, before in self.pending[subtask]:
                    writer.commit(before)
                self.pending[subtask] = []
                writer.commit(made[subtask])


@pytest.mark.parametrize("block", range(5))
def test_every_record_is_committed_exactly_once(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        job = Job(seed)
        job.run(60)
        job.zombies.clear()
        job.finish()
        expected = Counter(str(n).encode() for n in range(job.position))
        assert Counter(job.cluster.log) == expected, f"seed {seed}"
        assert job.cluster.open_transactions() == [], f"seed {seed}"
