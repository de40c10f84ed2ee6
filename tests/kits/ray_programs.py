"""Programs in processes of their own, as clients of the Ray cluster that the test runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos_kit import PATIENCE, until

ENDLESS = """
    import sys
    from datetime import timedelta
    import strom
    from strom.connectors.datagen import DataGenSource

    def numbers(start, count):
        return list(range(start, start + count))

    env = strom.StreamExecutionEnvironment.get_execution_environment(host="ray")
    stream = env.from_source(DataGenSource(numbers, rate=1000.0, block=20), source_name="numbers")
    stream = stream.map(lambda n: n + 1)
    print("going", flush=True)
"""
"""The beginning of programs: an endless `stream`. They say "going" when about to run it."""


class Program:
    """One process. `output` and `errors` once it has ended."""

    def __init__(self, folder: Path, text: str) -> None:
        script = folder / f"program-{len(list(folder.iterdir()))}.py"
        script.write_text(textwrap.dedent(ENDLESS) + textwrap.dedent(text))
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            env=joined_environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        self.output = ""
        self.errors = ""

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the program ended: {self.end().errors}")
        return line.strip()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 60.0) -> Program:
        """Wait for its end, for so long on an idle machine."""
        self.output, self.errors = self.process.communicate(timeout=seconds * PATIENCE)
        return self


def joined_environ() -> dict[str, str]:
    """Of a program that is to join the cluster that the test runs."""
    import ray

    return {
        **os.environ,
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "RAY_AUTH_MODE": "token",
    }


@contextmanager
def program(folder: Path, text: str) -> Iterator[Program]:
    """Runs `ENDLESS` and `text`; killed in the end if it still runs."""
    started = Program(folder, text)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.end()


def job_ids() -> set[str]:
    """Of all jobs whose coordinators live."""
    from strom.engine.hosts.coordinator_names import jobs_with_coordinators

    return set(jobs_with_coordinators())


def running_job(before: set[str]) -> Any:
    """The client of the one job that was started since, once it runs."""
    from strom.engine.hosts.ray_host import RayJobClient

    (job_id,) = until(lambda: job_ids() - before, "a new job", 60.0)
    client = RayJobClient.attach(job_id)
    until(lambda: client.get_job_status() == "RUNNING", "the job runs", 60.0)
    return client
