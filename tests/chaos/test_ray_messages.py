"""What cannot travel fails the job in one sentence instead of hanging it, on Ray as on the local
host; what ends a task's process is named; no message is a wall of Ray's."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import config, environment, failure, gather, until, within
from odd_programs import MOST, PROGRAMS, OddSource, Unreadable, numbers
from shared_ray import ray_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def said_by(text: str) -> str:
    return text.partition(" failed: ")[2]


LIKE_OTHERS = {
    "a lock within a row for the client",
    "a lock within a row for another task",
    "a generator for another task",
    "an error without a text",
    "an error of twenty megabytes in an enumerator",
}
"""These go the way of others; the local host, where they are told apart, has all."""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, marks=[pytest.mark.soak] if program in LIKE_OTHERS else [])
        for program in PROGRAMS
    ],
)
def test_the_sentence_is_that_of_the_local_host(program: str) -> None:
    make, pattern = PROGRAMS[program]
    text = failure(make(environment(config(), "ray")), 40.0)
    assert re.match(pattern, said_by(text)), text[:3000]
    assert len(text) < MOST


def test_a_record_the_client_cannot_read_is_its_error() -> None:
    with pytest.raises(strom.SerializationError, match="published records cannot be read"):
        gather(numbers(environment(config(), "ray")).map(Unreadable), 40.0)


def test_the_state_of_an_enumerator_that_does_not_pickle() -> None:
    env = environment(config(interval_ms=20, restart=strom.NoRestart()), "ray")
    text = failure(env.from_source(OddSource(threading.Lock, True), source_name="odd source"), 40.0)
    assert "operator 'odd source': the snapshot of its enumerator failed: TypeError" in text


def test_a_report_that_ray_refuses_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a report holds: the next one is not held back by it."""

    class Reporting(strom.MapFunction):
        def map(self, value: Any) -> Any:
            from strom.engine.task.reporting import FigureReports

            def nonsense(reports: FigureReports, exact: bool = False) -> dict[str, Any]:
                return {"lock": threading.Lock()}

            FigureReports.now = nonsense  # type: ignore[method-assign]
            return value

    text = failure(numbers(environment(config(), "ray")).map(Reporting()), 40.0)
    assert re.search(r"task .*: its MetricsReported cannot be sent to the coordinator: ", text)


def test_a_raising_close_is_in_the_log_of_its_task() -> None:
    class Closing(strom.MapFunction):
        def map(self, value: Any) -> Any:
            return value

        def close(self) -> None:
            raise RuntimeError("too late by far")

    assert len(gather(numbers(environment(config(), "ray")).map(Closing()).name("it"), 40.0)) == 100
    from ray._private.worker import _global_node

    logs = Path(_global_node.get_session_dir_path(), "logs").glob("worker-*.err")
    said = "".join(log.read_text(errors="replace") for log in logs)
    for subtask in range(2):
        assert f"operator 'it', subtask {subtask}: closing its function failed: " in said
    assert "RuntimeError: too late by far" in said


# --- processes that end -----------------------------------------------------------------------


def segfault(n: Any) -> Any:
    return ctypes.string_at(0)


def leave(n: Any) -> Any:
    os._exit(3)


def abort(n: Any) -> Any:
    os.abort()


def kill_oneself(n: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


ENDS: dict[Callable[[Any], Any], str] = {
    segfault: r"SIGSEGV at .*test_ray_messages\.py:\d+ in segfault",
    leave: r"os\._exit\(3\) was called at .*test_ray_messages\.py:\d+ in leave",
    abort: r"SIGABRT at .*test_ray_messages\.py:\d+ in abort",
    kill_oneself: r"it was killed, or ended itself, without a word",
}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_what_ended_a_process_is_named_and_where_its_log_is(end: Callable[[Any], Any]) -> None:
    text = said_by(failure(numbers(environment(config(), "ray")).map(end).name("it"), 40.0))
    found = re.match(
        rf"task .*it.* \(\d/2\) was lost: its process died: {ENDS[end]}; see its log (\S+) on \S+ "
        r"\(process \d+\)$",
        text,
    )
    assert found, text
    assert Path(found[1]).is_file()


class LeavingWhenLoaded:
    """Ends the process of a task that unpickles it, and lets the coordinator be."""

    def __call__(self, n: Any) -> Any:
        return n

    def __reduce__(self) -> Any:
        return (_leave_a_task, ())


def _leave_a_task() -> Any:
    if in_a_task():
        os._exit(4)
    return LeavingWhenLoaded()


def in_a_task() -> bool:
    """Whether this is called below a task's actor."""
    return any("TaskActor" in str(f.frame.f_locals.get("self", "")) for f in inspect.stack())


def test_what_ends_a_process_before_its_task_runs() -> None:
    text = failure(numbers(environment(config(), "ray")).map(LeavingWhenLoaded()).name("it"), 40.0)
    assert re.search(
        r"subtask \d, could not start: its process died: os\._exit\(4\) was called at "
        r".*test_ray_messages\.py:\d+ in _leave_a_task; see its log \S+",
        text,
    ), text
    assert "\n" not in text


# --- functions from elsewhere -----------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Any]:
    """A module that this program has and the cluster's processes lack."""
    (tmp_path / "only_here.py").write_text("def double(n):\n    return 2 * n\n")
    sys.path.insert(0, str(tmp_path))
    yield importlib.import_module("only_here")
    sys.path.remove(str(tmp_path))
    del sys.modules["only_here"]


def test_a_function_from_a_module_that_workers_lack(elsewhere: Any) -> None:
    env = environment(config(), "ray")
    numbers(env).map(elsewhere.double).name("it").sink_to(strom.DiscardSink())
    with pytest.raises(strom.SerializationError) as caught:
        within(40.0, "the refusal", lambda: env.execute("elsewhere"))
    text = str(caught.value)
    assert text.startswith("operator 'it': module 'only_here' is not to be had in the processes")
    for way in ("ray job submit --working-dir", "runtime_env", "py_modules"):
        assert way in text
    assert "\n" not in text
    assert caught.value.__suppress_context__, "Ray's own account comes before"


class ForCoordinatorsOnly:
    """Unpickles in the coordinator, and in the process of no task."""

    def __call__(self, n: Any) -> Any:
        return n

    def __reduce__(self) -> Any:
        return (_only_in_the_coordinator, ())


def _only_in_the_coordinator() -> Any:
    if in_a_task():
        raise ModuleNotFoundError("No module named 'only_there'", name="only_there")
    return ForCoordinatorsOnly()


def test_a_module_that_only_a_tasks_process_lacks() -> None:
    text = failure(numbers(environment(config(), "ray")).map(ForCoordinatorsOnly()).name("it"), 40)
    assert "module 'only_there' is not to be had in the processes" in text
    assert "ray::" not in text
    assert "\n" not in text


def test_what_ray_says_of_the_cluster_is_not_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """It says so to every program: whoever reads JSON there would find it ahead of that."""
    from ray._private.utils import publish_error_to_driver
    from ray._private.worker import global_worker

    said = ["", ""]

    def told(number: int) -> bool:
        publish_error_to_driver("notice", f"notice {number}", global_worker.gcs_client)
        for at, new in enumerate(capsys.readouterr()):
            said[at] += new
        return "notice" in said[1]

    numbers_of = iter(range(10_000))
    until(lambda: told(next(numbers_of)), "a notice on stderr", 30.0)
    assert "(raylet)" in said[1]
    assert "notice" not in said[0]
