"""A Ray cluster of machines that are network namespaces: the head on the first of them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from strom.core.errors import ResourceError

from .network import Machine, Network

PORT: Final = 6379
UP_S: Final = 240.0
"""For a node to start, on a busy machine."""

_START: Final = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
"""The command `ray`, of this Python."""


class RayMachines:
    """`cpus`: logical ones of each node. `settings`: Ray's own (`RAY_...`), of all nodes. Whatever
    runs on the machines ends with the context."""

    def __init__(
        self, network: Network, cpus: Sequence[int], settings: Mapping[str, str] | None = None
    ) -> None:
        self.network = network
        self._cpus = cpus
        self._settings = dict(settings or {})
        self._token = secrets.token_hex(32)
        self._folder = ""
        self._started = 0
        """Nodes, so far."""
        self._processes: list[subprocess.Popen[Any]] = []

    @property
    def address(self) -> str:
        return f"{self.network.machines[0].address}:{PORT}"

    @property
    def environ(self) -> dict[str, str]:
        """Of programs on any of the machines that join the cluster."""
        return {
            **os.environ,
            **self._settings,
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": self._folder,
            "TMPDIR": self._folder,
        }

    def __enter__(self) -> Self:
        # Ray puts sockets there, whose paths may have 107 bytes.
        self._folder = tempfile.mkdtemp(prefix="sm", dir="/tmp")
        try:
            for number in range(len(self._cpus)):
                self.start_node(number)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def start_node(self, number: int) -> None:
        """The first one is the head. Also one in place of one that is gone. ResourceError with what
        Ray said if it does not start."""
        machine = self.network.machines[number]
        where = [f"--address={self.address}"]
        if not number:
            where = ["--head", f"--port={PORT}", "--include-dashboard=false"]
            where.append(f"--temp-dir={self._folder}/r")
        self._started += 1
        said = Path(self._folder, f"start-{self._started}")
        arguments = ["-c", _START, "start", "--block", *where]
        arguments += [f"--node-ip-address={machine.address}", "--disable-usage-stats"]
        arguments += [f"--num-cpus={self._cpus[number]}", "--object-store-memory=100000000"]
        with said.open("w") as output:
            process = self.program(machine, arguments, stdout=output, stderr=output)
        self._processes.append(process)
        deadline = time.monotonic() + UP_S
        while "Ray runtime started" not in said.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ResourceError(f"Ray did not start on {machine.name}: {said.read_text()}")
            time.sleep(0.1)

    def program(
        self, machine: Machine, arguments: Sequence[str], **options: Any
    ) -> subprocess.Popen[Any]:
        """A Python program on a machine, which may join the cluster."""
        return machine.start([sys.executable, *arguments], env=self.environ, **options)

    def _end(self) -> None:
        for machine in self.network.machines:
            while pids := machine.processes():
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
        for process in self._processes:
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
