"""The ledgers keep their promises under any schedule."""

from __future__ import annotations

import random
from collections import deque

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import ConfigurationError, IllegalTransitionError, TransportError
from strom.engine.exchange.credits import GateLedger, Grant, SenderLedger


def test_exclusive_credit_is_renewed_when_its_buffer_is_consumed() -> None:
    ledger = GateLedger(2, exclusive=2, floating=0)
    assert ledger.on_buffer(0, backlog=0) == []
    assert ledger.on_consumed(0) == [(0, 1)]
    ledger.validate()


def test_floating_credits_go_to_the_largest_uncovered_backlog() -> None:
    ledger = GateLedger(3, exclusive=1, floating=3)
    ledger.on_buffer(0, backlog=0)
    assert ledger.on_buffer(1, backlog=1) == [(1, 1)]
    # channel 2 waits with 5: it gets the two that are left
    assert ledger.on_buffer(2, backlog=5) == [(2, 1), (2, 1)]
    # channel 1's floating credit returns to the pool; channel 2 wants three more
    assert ledger.on_consumed(1) == [(2, 1)]
    ledger.validate()
    assert ledger.total_outstanding() == 3 * 1 + 3


def test_a_blocked_channel_gets_nothing_until_unblocked() -> None:
    ledger = GateLedger(2, exclusive=1, floating=2)
    ledger.on_buffer(0, backlog=0)
    ledger.block(0)
    assert ledger.on_consumed(0) == []
    assert ledger.on_backlog(0, 4) == []
    assert ledger.outstanding(0) == 0
    assert ledger.unblock(0) == [(0, 1), (0, 1), (0, 1)]
    ledger.validate()


def test_misuse_is_an_error() -> None:
    ledger = GateLedger(1, exclusive=1, floating=0)
    with pytest.raises(IllegalTransitionError, match="never had"):
        ledger.on_consumed(0)
    ledger.on_buffer(0, 0)
    with pytest.raises(TransportError, match="without credit"):
        ledger.on_buffer(0, 0)
    sender = SenderLedger()
    with pytest.raises(IllegalTransitionError, match="without credit"):
        sender.on_sent(0)
    with pytest.raises(TransportError, match="at least 1"):
        sender.on_credit(0)
    with pytest.raises(ConfigurationError, match="exclusive_buffers"):
        GateLedger(1, exclusive=0, floating=3)


class World:
    """Senders with buffers to send, a gate, and messages under way in both directions, in order."""

    def __init__(self, loads: list[int], exclusive: int, floating: int, far: bool = False) -> None:
        self.far = far
        self.limit = len(loads) * exclusive + floating
        self.gate = GateLedger(len(loads), exclusive, floating)
        self.senders = [SenderLedger() for _ in loads]
        self.left = list(loads)
        self.consumed = [0] * len(loads)
        self.data: list[deque[tuple[bool, int, bool]]] = [deque() for _ in loads]
        self.grants: deque[Grant] = deque()
        self.queued = [0] * len(loads)
        self.blocked: set[int] = set()
        for sender in self.senders:
            sender.on_credit(exclusive)

    def steps(self) -> list[tuple[str, int]]:
        """Everything that could happen next."""
        moves: list[tuple[str, int]] = [("grant", 0)] if self.grants else []
        for i, sender in enumerate(self.senders):
            if self.left[i] and (sender.credit or self.left[i] > sender.announced):
                moves.append(("send", i))
            if self.data[i]:
                moves.append(("arrive", i))
            if self.queued[i] and i not in self.blocked:
                moves.append(("consume", i))
        return moves

    def do(self, step: str, i: int) -> None:
        match step:
            case "grant":
                index, count = self.grants.popleft()
                self.senders[index].on_credit(count)
            case "send" if self.senders[i].credit:
                self.left[i] -= 1
                self.senders[i].on_sent(self.left[i])
                starved = self.far and self.left[i] > 0 and not self.senders[i].credit
                self.data[i].append((True, self.left[i], starved))
            case "send":
                assert self.senders[i].announce(self.left[i])
                self.data[i].append((False, self.left[i], self.far))
            case "arrive":
                buffer, backlog, starved = self.data[i].popleft()
                self.queued[i] += buffer
                on = self.gate.on_buffer if buffer else self.gate.on_backlog
                self.grants.extend(on(i, backlog, starved))
            case "consume":
                self.queued[i] -= 1
                self.consumed[i] += 1
                self.grants.extend(self.gate.on_consumed(i))

    def toggle(self, i: int) -> None:
        if i in self.blocked:
            self.blocked.discard(i)
            self.grants.extend(self.gate.unblock(i))
        else:
            self.blocked.add(i)
            self.gate.block(i)

    def validate(self) -> None:
        self.gate.validate()
        assert self.gate.total_outstanding() <= self.limit
        for i, sender in enumerate(self.senders):
            sender.validate()
            under_way = sum(buffer for buffer, *_ in self.data[i])
            promised = sum(count for index, count in self.grants if index == i)
            held = sender.credit + under_way + self.queued[i] + promised
            assert held == self.gate.outstanding(i)


@given(
    loads=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    exclusive=st.integers(1, 3),
    floating=st.integers(0, 6),
    seed=st.integers(0, 2**32),
    far=st.booleans(),
)
@settings(max_examples=examples(120), deadline=None)
def test_everything_arrives_under_any_fair_schedule(
    loads: list[int], exclusive: int, floating: int, seed: int, far: bool
) -> None:
    world = World(loads, exclusive, floating, far)
    random_ = random.Random(seed)
    for _ in range(40):  # with channels blocked and unblocked at will
        if random_.random() < 0.2:
            world.toggle(random_.randrange(len(loads)))
        if moves := world.steps():
            world.do(*random_.choice(moves))
        world.validate()
    for i in list(world.blocked):
        world.toggle(i)
    while moves := world.steps():  # no move left must mean: nothing left to send
        world.do(*random_.choice(moves))
        world.validate()
    assert world.consumed == loads


def test_a_blocked_channel_does_not_stop_the_others() -> None:
    world = World([20, 20], exclusive=1, floating=4)
    world.toggle(0)
    while moves := world.steps():
        world.do(*moves[-1])
        world.validate()
    assert world.consumed == [0, 20]


class FarSender:
    """One that holds one buffer at a time, as its task stops then, and whose credits take so long
    that all buffers of a round are taken before the next one begins."""

    def __init__(self, exclusive: int, floating: int) -> None:
        self.gate = GateLedger(1, exclusive, floating)
        self.credit = exclusive

    def round(self, arrive_together: bool) -> int:
        """Send by all credit there is; how many buffers that were."""
        sent, self.credit = self.credit, 0
        starved = [False] * (sent - 1) + [True]
        granted: list[Grant] = []
        for last in starved:
            granted += self.gate.on_buffer(0, 1, last)
            if not arrive_together:
                granted += self.gate.on_consumed(0)
        for _ in starved if arrive_together else ():
            granted += self.gate.on_consumed(0)
        self.gate.validate()
        self.credit = sum(count for _, count in granted)
        return sent


@pytest.mark.parametrize("together", [False, True])
def test_a_sender_far_away_gets_what_its_way_holds(together: bool) -> None:
    far = FarSender(exclusive=2, floating=8)
    rounds = [far.round(together) for _ in range(6)]
    assert rounds[0] == 2
    assert rounds == sorted(rounds)
    assert rounds[-1] == 10  # all there are
