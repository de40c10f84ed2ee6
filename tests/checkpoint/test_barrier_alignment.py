"""Scripted barrier sequences, and random interleavings against the definition of alignment."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from strom.checkpoint.barrier_alignment import Abandon, Align, BarrierAligner, Block, UnblockAll
from strom.checkpoint.barrier_tracking import BarrierTracker
from strom.core.elements import CheckpointBarrier
from strom.core.errors import ConfigurationError, IllegalTransitionError


def barrier(n: int, terminal: bool = False) -> CheckpointBarrier:
    return CheckpointBarrier(n, 1000 + n, terminal)


def test_single_channel_never_blocks() -> None:
    aligner = BarrierAligner(1)
    assert aligner.on_barrier(0, barrier(1)) == (Align(barrier(1)),)
    assert aligner.on_barrier(0, barrier(2)) == (Align(barrier(2)),)
    assert aligner.blocked == frozenset()
    aligner.validate()


def test_three_channels_block_until_the_last_barrier() -> None:
    aligner = BarrierAligner(3)
    # Two channels deliver and are blocked.
    assert aligner.on_barrier(2, barrier(1)) == (Block(2),)
    assert aligner.on_barrier(0, barrier(1)) == (Block(0),)
    assert aligner.blocked == {0, 2}
    assert aligner.aligning == 1
    aligner.validate()
    # The third completes it: snapshot before anything is read again.
    assert aligner.on_barrier(1, barrier(1)) == (Align(barrier(1)), UnblockAll())
    assert aligner.blocked == frozenset()
    # The next checkpoint starts afresh.
    assert aligner.on_barrier(1, barrier(2)) == (Block(1),)
    aligner.validate()


def test_a_newer_barrier_overtakes_and_the_late_ones_are_skipped() -> None:
    aligner = BarrierAligner(2)
    # Checkpoint 1 is aligning on channel 0 when channel 1 skips to checkpoint 2.
    aligner.on_barrier(0, barrier(1))
    assert aligner.on_barrier(1, barrier(2)) == (Abandon(1), UnblockAll(), Block(1))
    aligner.validate()
    # Channel 0, unblocked, delivers 2 as well: 2 is aligned.
    assert aligner.on_barrier(0, barrier(2)) == (Align(barrier(2)), UnblockAll())


def test_a_late_barrier_during_a_newer_alignment_is_skipped() -> None:
    aligner = BarrierAligner(3)
    aligner.on_barrier(0, barrier(1))
    aligner.on_barrier(1, barrier(2))
    # Channel 2 still carries barrier 1 in front of 2.
    assert aligner.on_barrier(2, barrier(1)) == ()
    assert aligner.on_barrier(2, barrier(2)) == (Block(2),)
    assert aligner.on_barrier(0, barrier(2)) == (Align(barrier(2)), UnblockAll())
    aligner.validate()


def test_a_newer_barrier_on_one_channel_of_a_single_channel_task() -> None:
    aligner = BarrierAligner(1)
    assert aligner.on_abort(3) == ()
    assert aligner.on_barrier(0, barrier(2)) == (Align(barrier(2)),)  # another one
    assert aligner.on_barrier(0, barrier(3)) == ()  # aborted before it came
    assert aligner.on_barrier(0, barrier(4)) == (Align(barrier(4)),)


def test_abort_during_alignment_unblocks_and_skips_the_rest() -> None:
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, barrier(1))
    assert aligner.on_abort(1) == (Abandon(1), UnblockAll())
    # The barrier of the aborted checkpoint comes late on the other channel.
    assert aligner.on_barrier(1, barrier(1)) == ()
    # Aborting again, or aborting what is long over, changes nothing.
    assert aligner.on_abort(1) == ()
    aligner.on_barrier(0, barrier(2))
    assert aligner.on_abort(1) == ()
    assert aligner.blocked == {0}
    # An abort of a later one is its own: this one is still aligned, and that one skipped.
    assert aligner.on_abort(3) == ()
    assert aligner.on_barrier(1, barrier(2)) == (Align(barrier(2)), UnblockAll())
    assert aligner.on_barrier(1, barrier(3)) == ()
    assert aligner.on_barrier(0, barrier(4)) == (Block(0),)
    aligner.validate()


def test_protocol_violations_are_refused_with_history() -> None:
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, barrier(1))
    aligner.on_barrier(1, barrier(1))
    with pytest.raises(IllegalTransitionError, match=r"barrier 1 after barrier 1.*on channel 0"):
        aligner.on_barrier(1, barrier(1))
    aligner.on_barrier(0, barrier(2))
    with pytest.raises(IllegalTransitionError, match="channel 0 is blocked by checkpoint 2"):
        aligner.on_barrier(0, barrier(3))
    with pytest.raises(IllegalTransitionError, match="another channel"):
        aligner.on_barrier(1, barrier(2, terminal=True))
    with pytest.raises(IllegalTransitionError, match="not one of the 2 channels"):
        aligner.on_barrier(2, barrier(3))
    with pytest.raises(ConfigurationError):
        BarrierAligner(0)


def test_a_barrier_that_was_overtaken_at_its_sender_comes_late() -> None:
    """Whoever sent them overtook what waited with the second, when the first was given up."""
    aligner = BarrierAligner(1)
    for n in (1, 2):
        assert aligner.on_abort(n) == ()
    for n in (2, 1):
        assert aligner.on_announced(0, replace(barrier(n), overtakes=True)) == ()
    for n in (2, 1):
        assert aligner.on_barrier(0, replace(barrier(n), overtakes=True)) == ()
    with pytest.raises(IllegalTransitionError, match="barrier 2 after barrier 2"):
        aligner.on_barrier(0, replace(barrier(2), overtakes=True))


def run_interleaving(seed: int) -> int:
    """Channels carry records and barriers, some barriers missing (cancelled upstream); a task reads
    them in random order, obeying the aligner. At each Align(n) the records processed so far must
    be, channel by channel, exactly those in front of that channel's barrier n."""
    rng = random.Random(seed)
    channels = rng.randint(1, 4)
    checkpoints = range(1, rng.randint(2, 6))
    streams: list[list[object]] = []
    before: list[dict[int, int]] = []
    for _ in range(channels):
        stream: list[object] = []
        counts: dict[int, int] = {}
        records = 0
        for n in checkpoints:
            for _ in range(rng.randint(0, 4)):
                stream.append("record")
                records += 1
            if rng.random() < 0.9:
                counts[n] = records
                stream.append(barrier(n))
        streams.append(stream)
        before.append(counts)
    aligner = BarrierAligner(channels)
    read, blocked, aligned, gone = [0] * channels, set[int](), [0], set[int]()
    while any(streams[i] for i in range(channels) if i not in blocked):
        if rng.random() < 0.05:
            actions = aligner.on_abort(n := rng.choice(checkpoints))
            gone.add(n)
        else:
            i = rng.choice([i for i in range(channels) if streams[i] and i not in blocked])
            element = streams[i].pop(0)
            if element == "record":
                read[i] += 1
                continue
            assert isinstance(element, CheckpointBarrier)
            actions = aligner.on_barrier(i, element)
        for action in actions:
            match action:
                case Block(index):
                    blocked.add(index)
                case UnblockAll():
                    blocked.clear()
                case Align(b):
                    n = b.checkpoint_id
                    assert n > aligned[-1], f"seed {seed}"
                    assert n not in gone, f"seed {seed}"
                    expected = [counts[n] for counts in before]
                    assert read == expected, f"seed {seed}: checkpoint {n}"
                    aligned.append(n)
                case Abandon(n):
                    gone.add(n)
        assert aligner.blocked == blocked, f"seed {seed}"
        aligner.validate()
    return len(aligned) - 1


def test_random_interleavings_snapshot_exactly_what_is_before_the_barriers() -> None:
    aligned = sum(run_interleaving(seed) for seed in range(2000))
    assert aligned > 2000  # the schedules do reach the interesting case


def test_tracked_checkpoints_are_due_when_the_last_channel_has_delivered_them() -> None:
    """At least once: channels run ahead of each other; some barriers are missing, some checkpoints
    are aborted."""
    due = 0
    for seed in range(500):
        rng = random.Random(seed)
        channels, last = rng.randint(1, 4), rng.randint(2, 8)
        queues = [[n for n in range(1, last) if rng.random() < 0.95] for _ in range(channels)]
        complete = {n for n in range(1, last) if all(n in queue for queue in queues)}
        tracker = BarrierTracker(channels)
        found: list[int] = []
        aborted: set[int] = set()
        over: set[int] = set()
        while any(queues):
            actions: Any = ()
            if rng.random() < 0.05:
                aborted.add(n := rng.randint(1, last))
                actions = tracker.on_abort(n)
            else:
                queue = rng.choice([i for i in range(channels) if queues[i]])
                actions = tracker.on_barrier(queue, barrier(queues[queue].pop(0)))
            for action in actions:
                assert action.__class__ in (Align, Abandon)
                n = getattr(action, "barrier", action).checkpoint_id
                assert n not in over, f"seed {seed}: told twice"
                over.add(n)
                if isinstance(action, Align):
                    found.append(n)
            tracker.validate()
        assert found == sorted(found)
        assert complete - aborted <= set(found) <= complete, f"seed {seed}"
        due += len(found)
    assert due > 500
    tracker = BarrierTracker(2)
    tracker.on_barrier(0, barrier(1))
    with pytest.raises(IllegalTransitionError, match="barrier 1 after barrier 1"):
        tracker.on_barrier(0, barrier(1))


def test_without_losses_every_checkpoint_is_aligned() -> None:
    rng = random.Random(7)
    aligner = BarrierAligner(3)
    queues = [[barrier(n) for n in range(1, 50)] for _ in range(3)]
    aligned: list[int] = []
    while any(queues):
        i = rng.choice([i for i in range(3) if queues[i] and i not in aligner.blocked])
        for action in aligner.on_barrier(i, queues[i].pop(0)):
            if isinstance(action, Align):
                aligned.append(action.barrier.checkpoint_id)
    assert aligned == list(range(1, 50))
