"""A snapshot waits while an operator stands in the middle of what only it knows of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.elements import CheckpointBarrier
from strom.core.ids import CheckpointId
from strom.engine.task.checkpointing import TaskCheckpoints
from strom.engine.task.wakeups import Wakeups


class Recording(TaskCheckpoints):
    """Of a source task; notes which snapshots are taken."""

    def __init__(self) -> None:
        self.chain: Any = SimpleNamespace(
            settled=True, notify_aborted=lambda n: None, press=lambda pressed: None
        )
        self.taken: list[int] = []
        self.replaying = False
        nothing: Any = None
        deployment: Any = SimpleNamespace(
            inputs=(),
            config=JobConfig(),
            label="a source",
            local_folders=(),
            restore=None,
            restore_storage=None,
        )
        super().__init__(
            deployment,
            self.chain,
            nothing,
            VirtualClock(),
            *[nothing] * 3,
            Wakeups(),
            nothing,
            lambda: self.replaying,
        )

    def _snapshot(self, snapshot: Any) -> None:
        self.taken.append(snapshot.barrier.checkpoint_id)


def barrier(number: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(number), 0)


def test_it_is_taken_at_once_if_it_can_be() -> None:
    checkpoints = Recording()
    checkpoints.trigger(barrier(1))
    assert checkpoints.taken == [1]
    assert not checkpoints.waiting


def test_it_waits_until_the_chain_is_settled_in_order() -> None:
    checkpoints = Recording()
    checkpoints.chain.settled = False
    checkpoints.trigger(barrier(1))
    checkpoints.trigger(barrier(2))
    assert checkpoints.waiting
    assert not checkpoints.take_waiting()
    assert checkpoints.taken == []
    checkpoints.chain.settled = True
    assert checkpoints.take_waiting()
    assert checkpoints.taken == [1, 2]
    assert not checkpoints.waiting


def test_one_that_is_given_up_is_not_taken() -> None:
    checkpoints = Recording()
    checkpoints.chain.settled = False
    for number in (1, 2, 3):
        checkpoints.trigger(barrier(number))
    checkpoints.on_aborted(CheckpointId(2))
    checkpoints.chain.settled = True
    checkpoints.take_waiting()
    assert checkpoints.taken == [1, 3]


def test_one_that_overtakes_nothing_comes_behind_what_was_on_its_way() -> None:
    """A source whose chain is given records of a restored checkpoint: they are in no state."""
    checkpoints = Recording()
    checkpoints.replaying = True
    checkpoints.trigger(barrier(1))
    checkpoints.trigger(barrier(2))
    checkpoints.look_ahead()
    assert checkpoints.taken == []
    assert not checkpoints.waiting, "the replay goes on"
    checkpoints.on_aborted(CheckpointId(1))
    checkpoints.replaying = False
    checkpoints.look_ahead()
    assert checkpoints.taken == [2]
    checkpoints.replaying = True
    checkpoints.trigger(CheckpointBarrier(CheckpointId(3), 0, overtakes=True))
    assert checkpoints.taken == [2, 3], "this one has what is left of them"
