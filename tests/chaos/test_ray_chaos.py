"""Jobs on Ray whose processes are killed, stopped, pestered by strangers, or never start."""

from __future__ import annotations

import glob
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import strom
from chaos_kit import (
    Always,
    ListSink,
    config,
    environment,
    until,
    within,
)
from ray_chaos_kit import Job, ends_with_nothing, failure_of, live_actors, live_groups
from shared_ray import CPUS, ray_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One private Ray for the module; with it goes everything, or the last test tells."""
    with ray_of():
        yield


@pytest.fixture(autouse=True)
def nothing_left(cluster: None) -> Iterator[None]:
    yield
    ends_with_nothing()


# --- SIGKILL, SIGSTOP -------------------------------------------------------------------------


def test_whatever_is_killed_or_stopped_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    """One job goes through it all: a process of each vertex, two at once, in the middle of a
    checkpoint, one that is stopped when another dies, and all at once."""
    job = Job(tmp_path / "job", cancellation_s=1.0)
    for index in range(0, 6, 2):
        job.kill(job.running(more_checkpoints=1)["tasks"][index])
    tasks = job.running(more_checkpoints=1)["tasks"]
    job.kill(tasks[0], tasks[-1])
    for name in ("sums", "sink"):
        tasks = job.running(more_checkpoints=1)["tasks"]
        until(lambda: unfinished(job.state), "a checkpoint in progress")
        job.kill(next(t for t in tasks if job.names[t["vertex"]] == name))
    tasks = job.running(more_checkpoints=1)["tasks"]
    os.kill(tasks[2]["pid"], signal.SIGSTOP)
    job.kill(tasks[5])
    tasks_now = job.running(more_checkpoints=1)["tasks"]
    assert tasks[2]["pid"] not in {t["pid"] for t in tasks_now}
    job.kill(*tasks_now)
    job.running(more_checkpoints=1)
    job.finish()


def unfinished(state: Path) -> list[str]:
    folders = glob.glob(f"{state}/*/chk-*")
    return [f for f in folders if not os.path.exists(f"{f}/manifest.json")]


def test_a_job_that_may_not_restart_any_more_names_the_lost_task(tmp_path: Path) -> None:
    restart = strom.FixedDelayRestart(attempts=1, delay=timedelta(milliseconds=10))
    job = Job(tmp_path / "job", restart=restart, parallelism=1)
    job.kill(job.running()["tasks"][1])
    victim = job.running()["tasks"][1]
    os.kill(victim["pid"], signal.SIGKILL)
    text = failure_of(job.client)
    assert f"task {job.names[victim['vertex']]} (1/1) was lost: its process died" in text
    assert job.metrics()["restarts"] == 1


# --- hanging ----------------------------------------------------------------------------------


def test_a_stopped_process_does_not_hold_up_a_cancel(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", cancellation_s=1.0, parallelism=1)
    os.kill(job.running()["tasks"][1]["pid"], signal.SIGSTOP)
    started = time.monotonic()
    within(20.0, "cancel", job.client.cancel)
    assert time.monotonic() - started < 6.0
    assert job.client.get_job_status() is strom.JobStatus.CANCELED


def run_map(function: Callable[[Any], Any], **settings: Any) -> Any:
    """A started job that maps 100 numbers."""
    env = environment(config(**settings), "ray")
    env.from_collection(list(range(100))).map(function).name("it").sink_to(strom.DiscardSink())
    return env.execute_async("mapping")


def test_a_function_that_never_returns_does_not_hold_up_a_cancel(tmp_path: Path) -> None:
    entered = tmp_path / "entered"

    def block(n: Any) -> Any:
        entered.touch()
        signal.pause() if n < 0 else time.sleep(600)

    client = run_map(block, cancellation_s=1.0)
    until(entered.exists, "the function", 30.0)
    started = time.monotonic()
    within(20.0, "cancel", client.cancel)
    assert time.monotonic() - started < 6.0


# --- errors on their way through processes ----------------------------------------------------


class Secret(Exception):
    """Known to this module only, and not to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("not me")


def test_an_error_arrives_with_operator_and_traceback() -> None:
    def divide(n: Any) -> Any:
        raise Secret("deep inside")

    text = failure_of(run_map(divide))
    assert "operator 'it', subtask" in text
    assert "deep inside" in text
    assert "in divide" in text


def test_odd_values_and_keys_travel_unchanged() -> None:
    env = environment(config(chaining=False, batch_size=2, interval_ms=50), "ray")
    odd = [None, float("nan"), "", "ä\u0000\u202e🜁", b"\xff" * 100_000, 10**100, [None], {}, ()]
    odd += [{"deep": [{"er": (1, [2])}]}, -0.0, {1}, range(3), timedelta.max, ..., 2**64]
    stream = env.from_collection(odd).rebalance().map(lambda value: (repr(value), value))
    keyed = stream.key_by(lambda pair: pair[0]).map(lambda pair: pair[1])
    found = within(60.0, "odd values", lambda: list(keyed.execute_and_collect()))
    assert Counter(map(repr, found)) == Counter(map(repr, odd))


def test_a_function_that_leaves_the_process() -> None:
    assert "SystemExit" in failure_of(run_map(lambda n: exit(3)))
    assert "died" in failure_of(run_map(lambda n: os._exit(3)))


class Unloadable:
    """Pickles, but cannot be made from its pickle."""

    def __call__(self, n: Any) -> Any:
        return n

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


def test_a_function_that_cannot_be_unpickled_is_an_error_and_no_hang() -> None:
    with pytest.raises(strom.StromError) as caught:
        within(30.0, "the failure", lambda: failure_of(run_map(Unloadable())))
    assert "not a number" in str(caught.value)


def test_nonsense_that_only_the_coordinator_notices() -> None:
    checkpoint = strom.CheckpointConfig(storage="no-such-protocol://x")
    env = environment(strom.JobConfig(checkpoint=checkpoint), "ray")
    env.from_collection([1]).sink_to(strom.DiscardSink())
    before = len(live_actors("JobCoordinator"))
    with pytest.raises(strom.ConfigurationError, match="no-such-protocol"):
        within(30.0, "the error", lambda: env.execute_async("nowhere"))
    until(lambda: len(live_actors("JobCoordinator")) <= before, "no new coordinator")


# --- resources --------------------------------------------------------------------------------


def test_too_few_cpus_fail_the_job_with_the_numbers() -> None:
    client = run_map(
        lambda n: n,
        parallelism=CPUS + 3,
        slot_request_timeout=timedelta(seconds=1),
    )
    text = failure_of(client)
    assert "ResourceError" in text
    assert f"needs {CPUS + 3} slots of 1.0 CPU" in text
    assert f"the cluster has {float(CPUS)} CPU" in text


def test_a_job_that_waits_for_slots_is_cancelled_at_once() -> None:
    client = run_map(lambda n: n, parallelism=CPUS + 3)
    until(lambda: live_groups(), "the request for slots")
    started = time.monotonic()
    within(20.0, "cancel", client.cancel)
    assert time.monotonic() - started < 5.0
    assert client.get_job_status() is strom.JobStatus.CANCELED


def test_two_jobs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    one = Job(tmp_path / "one", parallelism=1, to_files=True)
    other = Job(tmp_path / "other", parallelism=1)
    other.running()
    one.kill(one.running(more_checkpoints=1)["tasks"][1])
    one.running()
    assert one.finish().restarts == 1
    assert other.finish().restarts == 0


# --- strangers --------------------------------------------------------------------------------


def listening(pid: int) -> list[tuple[str, int]]:
    """Where the task listens; and Ray, but on other addresses."""
    found = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == "LISTEN"]
    return [(c.laddr.ip, c.laddr.port) for c in found if c.laddr.ip.startswith("127.")]


def pester(address: tuple[str, int], rng: random.Random) -> None:
    """Garbage, a web browser, something like a handshake, silence, and hanging up."""
    for data in (rng.randbytes(4096), b"GET / HTTP/1.1\r\n\r\n", b"strom" + rng.randbytes(95), b""):
        with socket.create_connection(address, 2.0) as stranger:
            try:
                stranger.sendall(data)
                stranger.settimeout(0.05)
                stranger.recv(100)
            except OSError:
                continue


def test_strangers_at_the_sockets_of_tasks_change_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", to_files=True, parallelism=1)
    rng = random.Random(1)
    per_task = [listening(t["pid"]) for t in job.running()["tasks"]]
    assert all(per_task), "every task listens on loopback"
    silent = [socket.create_connection(per_task[-1][0], 2.0) for _ in range(200)]
    for address in (a for addresses in per_task for a in addresses):
        pester(address, rng)
    job.running(more_checkpoints=2)
    result = job.finish()
    for stranger in silent:
        stranger.close()
    assert result.restarts == 0


def test_a_raising_sink_is_named() -> None:
    env = environment(config(interval_ms=50, restart=strom.NoRestart()), "ray")
    env.from_collection([1, 2, 3]).sink_to(ListSink("commit", Always())).name("the sink")
    text = failure_of(env.execute_async("sinking"))
    assert "operator 'the sink'" in text
    assert "boom, always" in text
