"""The programs of `examples/pyflink` run every way, against models in plain Python."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import strom
from drawn_ways import assert_equivalent
from strom.common import Row
from strom.testing.equivalence import Ways

FOLDER = Path(strom.__file__).parent / "examples" / "pyflink"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pyflink_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_run_as_a_user_does(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_imports_nothing_that_pyflink_has_not(name: str) -> None:
    imported = re.findall(r"^from (strom\S*) import", (FOLDER / f"{name}.py").read_text(), re.M)
    assert imported
    assert all(one.startswith(("strom.common", "strom.datastream")) for one in imported)


def test_word_count() -> None:
    module = program("word_count")
    counts = Counter(word for line in module.TEXT for word in line.split())
    expected = [(word, n + 1) for word, total in counts.items() for n in range(total)]
    assert_equivalent(module.word_count, expected, Ways(seeds=range(16)))


def test_state_access() -> None:
    module = program("state_access")
    times = defaultdict(list)
    expected = []
    for n in range(200):
        mine = times[f"user {n * n % 7}"]
        mine.append(1_000 * n)
        if len(mine) % 10 == 0:
            took = mine[-1] - mine[-10]
            expected.append(Row("user", "calls", "took")(f"user {n * n % 7}", len(mine), took))
    assert_equivalent(module.tenth_calls, expected)


def test_event_time_timer() -> None:
    module = program("event_time_timer")
    readings = defaultdict(list)
    times = [n * 700 for n in range(60) if not 20 < n < 33]
    for n, time in enumerate(times):
        readings[f"sensor {n % 3}"].append(time)
    expected = [
        (sensor, time + 5_000)
        for sensor, mine in readings.items()
        for time, following in zip(mine, [*mine[1:], 10**9], strict=True)
        if following > time + 5_000
    ]
    assert len(expected) == 6
    assert_equivalent(module.silences, expected)


def test_windows() -> None:
    module = program("windows")
    purchases = [(f"customer {n % 3}", n * 7 % 50, n * 900 + n % 4 * 200) for n in range(80)]
    expected: list[Any] = []
    for customer in sorted({one[0] for one in purchases}):
        mine = [one for one in purchases if one[0] == customer]
        expected += _tumbling(mine) + _sliding(mine) + _sessions(mine)
        expected += [("counted", (customer, 4, total)) for total in _totals(mine, 4)]
        expected += [("global", (customer, 5, total)) for total in _totals(mine, 5)]
    assert_equivalent(module.windows, expected, Ways(seeds=range(2)))


def _tumbling(mine: list[Any]) -> list[Any]:
    windows = defaultdict(list)
    for one in mine:
        windows[one[2] // 10_000].append(one)
    dearest = [max(window, key=lambda one: (one[1], one[2])) for window in windows.values()]
    return [("tumbling", (name, time, price)) for name, price, time in dearest]


def _sliding(mine: list[Any]) -> list[Any]:
    windows = defaultdict(list)
    for _, price, time in mine:
        last = time // 10_000 * 10_000
        for start in (last, last - 10_000):
            windows[start + 20_000].append(price)
    return [("sliding", (mine[0][0], end, sum(p) // len(p))) for end, p in windows.items()]


def _sessions(mine: list[Any]) -> list[Any]:
    sessions: list[list[int]] = []
    for _, _, time in mine:
        if sessions and time <= sessions[-1][1]:
            sessions[-1][1] = time + 2_500
        else:
            sessions.append([time, time + 2_500])
    return [("sessions", (mine[0][0], start, end - start)) for start, end in sessions]


def _totals(mine: list[Any], size: int) -> list[int]:
    prices = [price for _, price, _ in mine]
    return [sum(prices[at : at + size]) for at in range(0, len(prices) - size + 1, size)]


def test_control_stream() -> None:
    module = program("control_stream")
    expected = []
    for n in range(100):
        time, amount = 100 * n, n * 37 % 100
        limit = 80 if time >= 7_000 else 50 if time >= 4_000 else 90 if time >= 1_000 else None
        if limit is not None and amount > limit:
            expected.append((f"account {n % 5}", time, amount, limit))
    assert_equivalent(module.alarms, expected)


def test_async_enrichment() -> None:
    module = program("async_enrichment")
    countries = ["SE", "NO", "SE", "unknown", "SE"]
    expected = [(n, f"customer {n % 5}", countries[n % 5]) for n in range(40)]
    assert_equivalent(module.enriched, expected, Ways(seeds=range(2)))
