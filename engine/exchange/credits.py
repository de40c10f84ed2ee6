"""The credit ledgers: who may send how many buffers to whom.

A receiver grants credits; one credit lets one buffer leave a sender, and comes free again when the
receiver's task takes that buffer out of its gate. What is in flight is thus bounded by what was
granted, whatever sockets and queues lie in between.

Every channel owns `exclusive` credits, so none can be starved by another. `floating` credits are
shared by the gate and go, one at a time, to the channel with the largest backlog that its unused
credits do not cover. A floating credit returns to the pool with each buffer taken, so it follows
the load.

A sender far away uses up its credits before the first buffer has arrived, and shows little backlog,
as its task stops: what it could send meanwhile is what the way there holds. So a channel from
another machine whose sender starved while the task had taken all that came has a *reach*, floating
credits that it holds while there is any backlog. It doubles each time that happens again, up to all
there are.

Pure bookkeeping: no I/O, no time. Control elements need no credit and do not appear here.
"""

from __future__ import annotations

from ...core.errors import ConfigurationError, IllegalTransitionError, TransportError

Grant = tuple[int, int]
"""Channel index at the gate, and how many credits it gets (>= 1)."""


class SenderLedger:
    """The sending side of one channel."""

    __slots__ = ("announced", "credit", "granted", "sent")

    def __init__(self) -> None:
        self.granted = 0
        """Credits received so far; never falls."""
        self.sent = 0
        """Buffers sent so far; never above `granted`."""
        self.credit = 0
        """`granted - sent`: buffers that may leave now."""
        self.announced = 0
        """The backlog the receiver last heard of."""

    def on_credit(self, count: int) -> None:
        if count < 1:
            raise TransportError(f"a grant must be at least 1 credit, is {count}")
        self.granted += count
        self.credit += count

    def on_sent(self, backlog: int) -> None:
        """A buffer leaves; `backlog` more are waiting behind it."""
        if self.credit < 1:
            raise IllegalTransitionError(
                f"buffer sent without credit: {self.sent} sent, {self.granted} granted"
            )
        self.credit -= 1
        self.sent += 1
        self.announced = backlog

    def on_returned(self) -> None:
        """The buffer just counted as sent did not leave after all (it must be cut first)."""
        if self.sent < 1:
            raise IllegalTransitionError("no buffer was sent that could return")
        self.credit += 1
        self.sent -= 1

    def announce(self, backlog: int) -> bool:
        """Whether the receiver must be told of `backlog` now: no buffer can leave to say it."""
        if self.credit or backlog <= self.announced:
            return False
        self.announced = backlog
        return True

    def validate(self) -> None:
        assert 0 <= self.sent <= self.granted
        assert self.credit == self.granted - self.sent
        assert self.announced >= 0


class _Account:
    """One channel at the gate. `outstanding == exclusive - owed + floating` always."""

    __slots__ = (
        "backlog",
        "blocked",
        "floating",
        "outstanding",
        "owed",
        "queued",
        "reach",
        "starved",
    )

    def __init__(self, exclusive: int) -> None:
        self.outstanding = exclusive
        """Credits granted whose buffer has not been consumed."""
        self.queued = 0
        """Buffers that arrived and wait; never above `outstanding`."""
        self.floating = 0
        """How many of the outstanding credits belong to the pool."""
        self.owed = 0
        """Exclusive credits to renew when the channel is unblocked."""
        self.backlog = 0
        """What the sender last announced."""
        self.blocked = False
        self.starved = False
        """Whether the sender was without credit since all had been taken."""
        self.reach = 0
        """Floating credits that it is to have while it has a backlog at all."""

    @property
    def want(self) -> int:
        """Announced buffers that no unused credit covers, or what lacks to its reach."""
        if self.blocked:
            return 0
        uncovered = self.backlog - (self.outstanding - self.queued)
        if not (self.reach and self.backlog):
            return uncovered
        return max(uncovered, self.reach - self.floating)


class GateLedger:
    """The receiving side of all channels of one gate. Methods return the grants to send."""

    def __init__(self, channels: int, exclusive: int, floating: int) -> None:
        if exclusive < 1 or floating < 0:
            raise ConfigurationError(
                f"need exclusive_buffers >= 1 and floating_buffers >= 0, "
                f"have {exclusive} and {floating}"
            )
        self.exclusive = exclusive
        """What each channel may use from the start: its sender learns it when the channel opens."""
        self.floating = floating
        self.free = floating
        """Pool credits nobody holds; in 0..floating."""
        self._accounts = [_Account(exclusive) for _ in range(channels)]
        self._backlogged: set[int] = set()
        """Indices of channels with an announced backlog."""

    def on_buffer(self, index: int, backlog: int, starved: bool = False) -> list[Grant]:
        """A buffer arrived with `backlog` behind it, of which none may leave if `starved`.
        TransportError: it had no credit."""
        account = self._accounts[index]
        if account.queued >= account.outstanding:
            raise TransportError(
                f"input channel {index}: a buffer arrived without credit "
                f"({account.queued} queued, {account.outstanding} granted)"
            )
        account.queued += 1
        return self.on_backlog(index, backlog, starved)

    def on_backlog(self, index: int, backlog: int, starved: bool = False) -> list[Grant]:
        """The sender has `backlog` buffers waiting, for want of credit alone if `starved`."""
        if not backlog and not self._backlogged:
            return []
        account = self._accounts[index]
        account.backlog = backlog
        if starved:
            account.starved = True
            if not account.queued:
                self._reach_further(account)
        if backlog:
            self._backlogged.add(index)
        else:
            self._backlogged.discard(index)
        return self._lend([])

    def on_consumed(self, index: int) -> list[Grant]:
        """The task took a buffer of `index`: its credit is free again."""
        account = self._accounts[index]
        if account.queued < 1:
            raise IllegalTransitionError(f"input channel {index}: consumed a buffer it never had")
        account.queued -= 1
        if not account.queued and account.starved:
            self._reach_further(account)
        grants: list[Grant] = []
        if account.floating:
            account.floating -= 1
            account.outstanding -= 1
            self.free += 1
        elif account.blocked:
            account.outstanding -= 1
            account.owed += 1
        else:
            grants.append((index, 1))
        return self._lend(grants)

    def _reach_further(self, account: _Account) -> None:
        account.starved = False
        account.reach = min(self.floating, 2 * account.reach or 1)

    def block(self, index: int) -> None:
        """Renew no credit of this channel until it is unblocked."""
        self._accounts[index].blocked = True

    def unblock(self, index: int) -> list[Grant]:
        account = self._accounts[index]
        account.blocked = False
        grants: list[Grant] = []
        if account.owed:
            grants.append((index, account.owed))
            account.outstanding += account.owed
            account.owed = 0
        return self._lend(grants)

    def _lend(self, grants: list[Grant]) -> list[Grant]:
        """Pool credits to the largest uncovered backlog, ties to who holds fewer of them."""
        while self.free and self._backlogged:
            accounts = self._accounts
            index = max(
                self._backlogged, key=lambda i: (accounts[i].want, -accounts[i].floating, -i)
            )
            account = accounts[index]
            if account.want < 1:
                break
            account.floating += 1
            account.outstanding += 1
            self.free -= 1
            grants.append((index, 1))
        return grants

    def outstanding(self, index: int) -> int:
        """Credits of this channel that are granted and not consumed."""
        return self._accounts[index].outstanding

    def total_outstanding(self) -> int:
        """Never above `channels * exclusive + floating`."""
        return sum([account.outstanding for account in self._accounts])

    def validate(self) -> None:
        assert 0 <= self.free <= self.floating
        assert self.free + sum([a.floating for a in self._accounts]) == self.floating
        for index, account in enumerate(self._accounts):
            assert 0 <= account.queued <= account.outstanding
            assert account.outstanding == self.exclusive - account.owed + account.floating
            assert account.owed == 0 or account.blocked
            assert 0 <= account.reach <= self.floating
            assert (index in self._backlogged) == (account.backlog > 0)
        if self.free:
            assert all(account.want < 1 for account in self._accounts)
