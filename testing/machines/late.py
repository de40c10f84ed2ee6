"""A network on which each packet is on its way for a while, in any number at once.

The kernel's own means (`netem`) is not everywhere. Here each machine has a `tun`, whose packets are
read, kept for their time, and written to the one they are for. Unlike with a proxy, TCP sees all of
it: its windows have to cover the delay.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from strom.core.errors import ResourceError

_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x1001

LARGEST: Final = 1 << 16
AT_ONCE: Final = 64
"""Packets of one machine before others have their turn."""


def open_tun(name: str) -> int:
    """The file of a new interface, which goes with it; it may be moved to any namespace.
    ResourceError if there can be none."""
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        try:
            request = struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER)
            fcntl.ioctl(tun, _TUNSETIFF, request)
        except OSError:
            os.close(tun)
            raise
    except OSError as error:
        raise ResourceError(f"no interface by /dev/net/tun: {error}") from error
    return tun


class LateNetwork:
    """Passes packets between `tuns`, of which number n has an address that ends in n + 1, on a
    thread of its own. Lost are those to others, of IPv6, and of machines in `cut`."""

    def __init__(self, tuns: Sequence[int], late_s: float) -> None:
        self.cut: set[int] = set()
        self._tuns = tuns
        self._late_s = late_s
        self._under_way: deque[tuple[float, int, bytes]] = deque()
        """When each is due, and where; in order."""
        self._over = False
        self._thread = threading.Thread(target=self._live, name="late network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        self._thread.join()

    def _live(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number, tun in enumerate(self._tuns):
                selector.register(tun, selectors.EVENT_READ, number)
            while not self._over:
                wait = 0.05
                if self._under_way:
                    wait = min(wait, max(0.0, self._under_way[0][0] - time.monotonic()))
                for key, _ in selector.select(wait):
                    self._take(key.data)
                self._deliver()

    def _take(self, number: int) -> None:
        due = time.monotonic() + self._late_s
        for _ in range(AT_ONCE):
            try:
                packet = os.read(self._tuns[number], LARGEST)
            except OSError:  # nothing there, or the interface is down
                return
            target = packet[19] - 1 if packet[0] >> 4 == 4 else -1
            if 0 <= target < len(self._tuns) and not self.cut & {number, target}:
                self._under_way.append((due, target, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, target, packet = self._under_way.popleft()
            if target in self.cut:
                continue
            try:
                os.write(self._tuns[target], packet)
            except OSError:
                continue  # lost, as on a full line
