"""How long the REST API of a session takes to answer: with many jobs that are over, and many that
run.

The jobs that run are of a source of some records a second, a keyed sum and checkpoints, so that
what is measured is the API and not a machine that is full. Those that are over are one real job's
archive, under as many ids. One client asks for a page's paths in turn, of one job after the other,
on a connection per request, as scripts do.
"""

from __future__ import annotations

import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from strom import DiscardSink, JobClient, JobStatus
from strom.cluster import dispatcher_client
from strom.cluster.records import JobRecord
from strom.cluster.registry import Registry
from strom.connectors.datagen import DataGenSource
from strom.engine.hosts.driver import new_job_id
from strom.engine.hosts.ray_connect import connect_to_ray
from strom.rest.servers import session_server
from strom.rest.servers.api import Serving

from .measure import Setting, environment
from .streams import KEY_VALUE, key_values

RATE = 10
"""Records a second of each job."""

CHECKPOINT_S = 10.0
"""From one checkpoint of a job to the next."""

PATHS = {
    "overview": "/jobs/overview",
    "job": "/jobs/{job}",
    "figures": "/jobs/{job}/figures",
    "checkpoints": "/jobs/{job}/checkpoints",
    "exceptions": "/jobs/{job}/exceptions",
}
"""What the dashboard asks for, by what the line calls it."""

TIMEOUT_S = 60.0


def answers(ended: int, running: int, requests: int) -> dict[str, Any]:
    """A line: percentiles in ms over `requests` of each path, in a session with so many jobs."""
    with session(ended, running) as (url, jobs):
        for path in PATHS.values():
            asked(url + path.format(job=jobs[0]))
        taken: dict[str, list[float]] = {name: [] for name in PATHS}
        for number in range(requests):
            for name, path in PATHS.items():
                taken[name].append(asked(url + path.format(job=jobs[number % len(jobs)])))
    every = [one for each in taken.values() for one in each]
    return {
        "name": "observe rest",
        "jobs_ended": ended,
        "jobs_running": running,
        "requests": len(every),
        "p50_ms": _percentile(every, 50),
        "p99_ms": _percentile(every, 99),
        "most_ms": round(max(every), 1),
        **{
            name: {"p50_ms": _percentile(each, 50), "p99_ms": _percentile(each, 99)}
            for name, each in taken.items()
        },
    }


def asked(url: str) -> float:
    """ms until the whole answer is there."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1000


@contextmanager
def session(ended: int, running: int) -> Iterator[tuple[str, list[str]]]:
    """Where a session with these jobs is served, and the ids of those that run."""
    connect_to_ray(num_cpus=running + 1, log_to_driver=False)
    clients: list[JobClient] = []
    # A dispatcher that is stopped may be within a write.
    with tempfile.TemporaryDirectory(prefix="strom-bench-", ignore_cleanup_errors=True) as folder:
        registry = str(Path(folder, "registry"))
        dispatcher_client.start(registry, ready=0)
        try:
            first = started(str(Path(folder, "checkpoints")), RATE)
            first.get_job_execution_result()
            multiply(registry, str(first.get_job_id()), ended)
            # The next dispatcher reads them all, as after any restart.
            dispatcher_client.stop()
            dispatcher_client.start(registry, ready=0)
            url = session_server.start(Serving(port=0))["rest"]
            for _ in range(running):
                clients.append(started(str(Path(folder, "checkpoints"))))
            yield f"{url}/v1", [str(client.get_job_id()) for client in clients]
        finally:
            for client in clients:
                client.cancel()
            session_server.stop()
            dispatcher_client.stop()


def started(checkpoints: str, events: int = 1 << 40) -> JobClient:
    """A job of the session, of which all tasks run, or have."""
    setting = Setting("observe rest", events, 1, checkpoint_interval=CHECKPOINT_S)
    env = environment(setting, checkpoints)
    source = DataGenSource(key_values, events, schema=KEY_VALUE, rate=RATE)
    env.from_source(source, source_name="paced").key_by("k").sum("v").sink_to(DiscardSink())
    client = env.execute_async("benchmark rest")
    deadline = time.monotonic() + TIMEOUT_S
    while client.get_job_status() in (JobStatus.CREATED, JobStatus.RESTARTING):
        if time.monotonic() > deadline:
            raise RuntimeError(f"job {client.get_job_id()} does not run after {TIMEOUT_S:.0f} s")
        time.sleep(0.1)
    return client


def multiply(registry: str, job_id: str, count: int) -> None:
    """Archive a job that is over under `count` ids more, once its own archive is there."""
    kept = Registry(registry)
    deadline = time.monotonic() + TIMEOUT_S
    while (known := kept.ended(job_id)) is None or (view := kept.view(job_id)) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"job {job_id} is not archived after {TIMEOUT_S:.0f} s")
        time.sleep(0.1)
    record = JobRecord.from_json(known.pop("record"))
    for _ in range(count):
        new = new_job_id()
        kept.archive(replace(record, job_id=new), known, {**view, "id": new})


def _percentile(values: list[float], part: int) -> float:
    return round(float(np.percentile(values, part)), 1)
