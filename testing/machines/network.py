"""Machines that are namespaces of this one's network: each has interfaces, addresses and ports of
its own, and shares files and processors with the others. Linux, and root.

A pair of `veth` leads from each to a bridge, which nobody outside is on. Cutting a link takes the
machine's end at the bridge down: packets are lost without a word, as on a cable that is pulled.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from strom.core.errors import ResourceError

from .late import LateNetwork, open_tun

FAST: Final = "10.77.0.{}"
LATE: Final = "10.78.0.{}"


def missing() -> str | None:
    """What this machine lacks to have such ones; None: nothing."""
    if sys.platform != "linux":
        return "network namespaces, which only Linux has"
    if shutil.which("ip") is None:
        return "the command `ip` (iproute2)"
    if os.geteuid() != 0:
        return "the right to make network namespaces (root)"
    try:
        with Network(1):
            return None
    except ResourceError as error:
        return str(error)


class Machine:
    """`address`: by which the others reach it."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def start(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """A process on it, which whoever started it ends; `options`: of Popen."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *arguments], **options)

    def processes(self) -> list[int]:
        """Of all that run on it."""
        return [int(pid) for pid in _ip("netns", "pids", self.name).split()]


class Network:
    """So many machines, for as long as the context lasts. `late_s`: seconds that each packet takes
    from one to another; 0: as fast as it goes. ResourceError if this machine cannot have them."""

    def __init__(self, machines: int, late_s: float = 0.0) -> None:
        self.machines: list[Machine] = []
        self._count = machines
        self._late_s = late_s
        self._token = secrets.token_hex(3)
        self._late: LateNetwork | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            bridge = f"sb{self._token}"
            if not self._late_s:
                _ip("link", "add", bridge, "type", "bridge")
                stack.callback(_ip, "link", "del", bridge)
                _ip("link", "set", bridge, "up")
            tuns = []
            for number in range(self._count):
                machine = self._machine(number, stack)
                if self._late_s:
                    tuns.append(self._tun(machine, number, stack))
                else:
                    self._plug_in(machine, number, bridge, stack)
                _ip("-n", machine.name, "link", "set", "lo", "up")
                device = "eth0" if not self._late_s else self._tun_name(number)
                _ip("-n", machine.name, "route", "add", "default", "dev", device)
            if tuns:
                self._late = stack.enter_context(LateNetwork(tuns, self._late_s))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _machine(self, number: int, stack: ExitStack) -> Machine:
        name = f"strom-{self._token}-{number}"
        _ip("netns", "add", name)
        stack.callback(_ip, "netns", "del", name)
        pattern = LATE if self._late_s else FAST
        machine = Machine(name, pattern.format(number + 1))
        self.machines.append(machine)
        return machine

    def _plug_in(self, machine: Machine, number: int, bridge: str, stack: ExitStack) -> None:
        port = self._port(number)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
        stack.callback(_ip, "link", "del", port)
        _ip("link", "set", port, "master", bridge, "up")
        self._address(machine, "eth0")

    def _tun(self, machine: Machine, number: int, stack: ExitStack) -> int:
        name = self._tun_name(number)
        tun = open_tun(name)
        stack.callback(os.close, tun)
        _ip("link", "set", name, "netns", machine.name)
        _ip("-n", machine.name, "link", "set", name, "mtu", "32000", "txqueuelen", "10000")
        self._address(machine, name)
        return tun

    def _address(self, machine: Machine, device: str) -> None:
        _ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", device)
        _ip("-n", machine.name, "link", "set", device, "up")

    def _port(self, number: int) -> str:
        return f"sv{self._token}{number}"

    def _tun_name(self, number: int) -> str:
        return f"st{self._token}{number}"

    def cut(self, number: int) -> None:
        """Nothing comes from this machine to the others any more, and nothing to it."""
        if self._late is not None:
            self._late.cut.add(number)
        else:
            _ip("link", "set", self._port(number), "down")

    def mend(self, number: int) -> None:
        if self._late is not None:
            self._late.cut.discard(number)
        else:
            _ip("link", "set", self._port(number), "up")


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ResourceError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
