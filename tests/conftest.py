"""For all tests: functions travel by value, unit tests do not sleep, nothing is left over."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import psutil
import pytest
from amounts import examples
from hypothesis import HealthCheck, settings

# Ray clusters of the tests have a token of their own; else Ray would leave one in the user's home.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

# Ray's workers are as important as the tests that wait for them: by default they run only when
# nothing else does, such as the other tests beside them.
os.environ.setdefault("RAY_worker_niceness", "0")

# Tests interrupt programs that they start. What runs in the background of a script, as the tests
# may, ignores that, and so would the programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No JVM of the tests lives long enough to gain from the optimising compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# How long a busy machine takes to draw or to run an example says nothing of what is tested.
settings.register_profile(
    "strom",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("strom")

ROOT = Path(__file__).parent
KITS = ROOT / "kits"
"""What several test modules share; on the import path (`pyproject.toml`)."""

UNIT_FOLDERS = (
    "api",
    "checkpoint",
    "coordinator",
    "core",
    "exchange",
    "graph",
    "operators_columnar",
    "operators_io",
    "operators_rows",
    "state",
)
"""Here nothing may sleep or start Ray."""

STARTING = ("ray", "spark", "kafka", "postgres", "s3", "browser")
"""Markers of tests that start something, which `scripts/test` runs apart."""

LINGERING = ("fsspecIO", "asyncio_", "pytest_timeout", "IPythonHistory")
"""Threads that libraries start once per process and keep."""

SHARES_A_CLUSTER: set[Path] = set()
"""Modules of which a test that is run needs Ray or Spark, whose processes outlive modules."""

PATIENCE_S = 10.0
"""How long what a module started may take to end by itself."""


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Tests and kits cannot be imported where tasks run: what they define travels by value."""
    kits = {sys.modules[kit.stem] for kit in KITS.glob("*.py") if kit.stem in sys.modules}
    for module in kits | {item.module for item in items if hasattr(item, "module")}:
        cloudpickle.register_pickle_by_value(module)
    for path, name in {(item.path, mark.name) for item in items for mark in item.iter_markers()}:
        if name not in STARTING or path.parent == ROOT / "docs":
            continue
        if f"mark.{name}" not in path.read_text():
            raise pytest.UsageError(
                f"{path} has tests under the marker {name}, but not its name in its text, so that "
                f"scripts/test does not find them: write pytest.mark.{name}"
            )


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays to the end: no collection of garbage looks at it again."""
    clustered = (
        item.path
        for item in session.items
        if any(item.get_closest_marker(name) for name in ("ray", "spark"))
    )
    SHARES_A_CLUSTER.update(clustered)
    gc.collect()
    gc.freeze()


def _forbidden(*arguments: Any, **options: Any) -> NoReturn:
    raise AssertionError(
        "a unit test sleeps or starts Ray: inject a clock and step what runs; tests that need "
        "either belong elsewhere (tests/e2e), or under the marker 'ray' or 'slow'"
    )


@pytest.fixture(autouse=True)
def _unit_tests_neither_sleep_nor_start_ray(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.path.relative_to(ROOT).parts[0]
    exempt = any(request.node.get_closest_marker(name) for name in ("ray", "spark", "slow"))
    if folder not in UNIT_FOLDERS or exempt:
        return
    monkeypatch.setattr(time, "sleep", _forbidden)
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", _forbidden)
    else:
        stand_in = types.ModuleType("ray")
        stand_in.init = _forbidden  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "ray", stand_in)


@pytest.fixture(scope="module", autouse=True)
def _garbage_is_looked_for_once() -> Iterator[None]:
    """What a module leaves stays to the end, mostly: what it imported, kernels, caches. Else each
    later collection would look at it again, and a whole one takes half a second in the end."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_over(request: pytest.FixtureRequest) -> Iterator[None]:
    """The threads and child processes of a module end with it."""
    if request.node.path in SHARES_A_CLUSTER:
        yield
        return
    threads = set(threading.enumerate())
    children = set(psutil.Process().children())
    yield
    left = [
        *_still_alive(set(threading.enumerate()) - threads),
        *_still_running(set(psutil.Process().children()) - children),
    ]
    assert not left, f"{request.node.name} leaves behind: {', '.join(left)}"


def _still_alive(threads: set[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + PATIENCE_S
    for thread in threads:
        while thread.ident is None and time.monotonic() < deadline:
            time.sleep(0.001)  # is being started
        if not thread.name.startswith(LINGERING):
            thread.join(max(0.0, deadline - time.monotonic()))
    alive = [t.name for t in threads if t.is_alive() and not t.name.startswith(LINGERING)]
    return [f"thread {name}" for name in sorted(alive)]


def _still_running(children: set[psutil.Process]) -> list[str]:
    _, alive = psutil.wait_procs(list(children), timeout=PATIENCE_S)
    return [f"process {child.pid} ({child.name()})" for child in alive]
