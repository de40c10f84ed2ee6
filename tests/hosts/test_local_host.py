"""The local host: what its client promises, and that a job leaves nothing behind in the process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import strom
from chaos_kit import until
from strom import JobStatus, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource

QUICK = timedelta(seconds=5)


def environment(interval_ms: int | None = None, folder: Path | None = None) -> Any:
    interval = None if interval_ms is None else timedelta(milliseconds=interval_ms)
    checkpoint = strom.CheckpointConfig(interval, None if folder is None else str(folder))
    settings = strom.JobConfig(
        parallelism=2,
        checkpoint=checkpoint,
        metrics_interval=timedelta(milliseconds=10),
        restart=strom.NoRestart(),
    )
    return StreamExecutionEnvironment.get_execution_environment(settings)


def endless(env: Any) -> Any:
    """A started job that ends only by being cancelled."""
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    env.from_source(source).key_by(lambda n: n % 5).reduce(max).sink_to(strom.DiscardSink())
    return env.execute_async("endless")


def finished(env: Any) -> None:
    env.from_collection(list(range(100))).rebalance().sink_to(strom.DiscardSink())
    env.execute("finishing")


def failed(env: Any) -> None:
    env.from_collection(list(range(100))).map(lambda n: 1 // 0).sink_to(strom.DiscardSink())
    with pytest.raises(strom.JobFailedError, match="ZeroDivisionError"):
        env.execute("failing")


def cancelled(env: Any) -> None:
    client = endless(env)
    until(lambda: client.get_job_status() is JobStatus.RUNNING, "a running job")
    client.cancel()


def cancelled_at_once(env: Any) -> None:
    endless(env).cancel()


def job_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("strom-")]


@pytest.mark.parametrize("end", [finished, failed, cancelled, cancelled_at_once])
def test_ten_jobs_leave_no_thread_and_no_file(end: Callable[[Any], None], tmp_path: Path) -> None:
    end(environment(5, tmp_path))
    until(lambda: not job_threads(), "the end of the threads")
    files = psutil.Process().num_fds()
    for _ in range(10):
        end(environment(5, tmp_path))
    until(lambda: not job_threads(), f"the end of {job_threads()}")
    assert psutil.Process().num_fds() <= files
    assert psutil.Process().children() == []


@pytest.mark.parametrize("end", [finished, cancelled])
def test_a_job_that_is_over_and_forgotten_is_freed(end: Callable[[Any], None]) -> None:
    env = environment(5)
    jobs = []
    submit = env._submit
    env._submit = lambda graph: jobs.append(weakref.ref(job := submit(graph))) or job
    end(env)
    env._submit = submit
    until(lambda: gc.collect() >= 0 and jobs[0]() is None, "the job's memory")


def test_a_client_of_a_job_that_is_over() -> None:
    env = environment()
    with env.from_collection([1, 2, 3]).execute_and_collect() as results:
        assert sorted(results) == [1, 2, 3]
    client = results.client
    assert client.get_job_status() is JobStatus.FINISHED
    first = client.get_job_execution_result()
    client.cancel()
    assert client.get_job_execution_result() == first
    assert client.get_job_status() is JobStatus.FINISHED
    assert client.metrics()["state"] == "FINISHED"
    assert client.metrics()["runtime_ms"] == pytest.approx(first.net_runtime_ms)


def test_waiting_for_a_result_may_time_out_and_cancel_is_idempotent() -> None:
    client = endless(environment())
    with pytest.raises(TimeoutError):
        client.get_job_execution_result(timedelta(milliseconds=50))
    threads = [threading.Thread(target=client.cancel) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
        assert not thread.is_alive()
    assert client.get_job_status() is JobStatus.CANCELED
    with pytest.raises(strom.JobCancelledError):
        client.get_job_execution_result(QUICK)


def test_jobs_run_beside_each_other() -> None:
    jobs = [endless(environment(5)) for _ in range(4)]
    assert len({job.get_job_id() for job in jobs}) == 4
    for job in jobs:
        until(lambda job=job: job.metrics()["checkpoints"]["completed"] >= 2, "checkpoints")
    finished(environment(5))
    for job in jobs:
        job.cancel()


def test_ctrl_c_cancels_the_job_that_is_being_executed(tmp_path: Path) -> None:
    """As a user sees it: a program in `execute`, SIGINT, KeyboardInterrupt, the process ends."""
    program = tmp_path / "program.py"
    program.write_text(
        "import strom, threading\n"
        "from strom.connectors.datagen import DataGenSource\n"
        "env = strom.StreamExecutionEnvironment.get_execution_environment()\n"
        "source = DataGenSource(lambda start, n: list(range(start, start + n)))\n"
        "def show(n, first=[True]):\n"
        "    if first.pop() if first else False:\n"
        "        print('running', flush=True)\n"
        "env.from_source(source).map(show).sink_to(strom.DiscardSink())\n"
        "try:\n"
        "    env.execute('endless')\n"
        "except KeyboardInterrupt:\n"
        "    print([t.name for t in threading.enumerate() if t.name.startswith('strom-')])\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60.0)
    finally:
        process.kill()
    assert (out, err, process.returncode) == ("[]\n", "", 0)


def test_a_broken_driver_fails_the_job_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the engine must not look like a job that runs for ever."""
    from strom.engine.coordinator.job_master import JobMaster

    def broken(self: Any, *arguments: Any) -> Any:
        raise AssertionError("a bug")

    monkeypatch.setattr(JobMaster, "on_tick", broken)
    client = endless(environment(5))
    with pytest.raises(strom.JobFailedError, match=r"the coordinator broke: .*a bug"):
        client.get_job_execution_result(QUICK)
    assert client.get_job_status() is JobStatus.FAILED


def test_a_slow_function_on_large_buffers_still_hears_control() -> None:
    """A hundred thousand small records in one buffer, a millisecond for each: mail waits for a
    portion of them, and reports do not pile up behind the slow task."""

    def slow(n: int) -> int:
        time.sleep(0.001)
        return n

    env = environment(20)
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    env.from_source(source).rebalance().map(slow).sink_to(strom.DiscardSink())
    client = env.execute_async("slow")
    until(lambda: handled(client) > 300, "records", 20.0)
    started = time.monotonic()
    client.cancel()
    assert time.monotonic() - started < 3.0


def handled(client: Any) -> int:
    return int(client.metrics()["operators"][1]["records_in"])


def test_checkpoints_complete_behind_a_slow_function() -> None:
    """With batches and buffers as small as the function is slow."""

    def slow(n: int) -> int:
        time.sleep(0.001)
        return n

    settings = strom.JobConfig(
        parallelism=2,
        batch_size=10,
        exchange=strom.ExchangeConfig(buffer_bytes=256),
        checkpoint=strom.CheckpointConfig(timedelta(milliseconds=50)),
        metrics_interval=timedelta(milliseconds=1),
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    source = DataGenSource(lambda start, n: list(range(start, start + n)), block=1)
    env.from_source(source).rebalance().map(slow).sink_to(strom.DiscardSink())
    client = env.execute_async("slow")
    until(lambda: client.metrics()["checkpoints"]["completed"] >= 3, "three checkpoints", 20.0)
    client.cancel()


def test_a_program_ends_though_a_commit_hangs_in_the_background(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import strom, threading\n"
        "from datetime import timedelta\n"
        "from strom import Sink, SinkWriter\n"
        "class Stuck(Sink):\n"
        "    def create_writer(self, context):\n"
        "        return StuckWriter()\n"
        "class StuckWriter(SinkWriter):\n"
        "    def write(self, batch): pass\n"
        "    def prepare_commit(self, n): return lambda: threading.Event().wait()\n"
        "    def commit(self, committables): pass\n"
        "ms = timedelta(milliseconds=1)\n"
        "timeout = strom.CheckpointConfig(10 * ms, timeout=200 * ms)\n"
        "config = strom.JobConfig(checkpoint=timeout, restart=strom.NoRestart())\n"
        "env = strom.StreamExecutionEnvironment.get_execution_environment(config)\n"
        "env.from_collection(list(range(10))).sink_to(Stuck()).name('stuck')\n"
        "try:\n"
        "    env.execute()\n"
        "except strom.JobFailedError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=80.0
    )
    assert done.returncode == 0, done.stderr
    assert "not acknowledged within 200 ms" in done.stdout
