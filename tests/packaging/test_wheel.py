"""Wheels of this checkout, installed where nothing else of it is."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import strom

ROOT = Path(strom.__file__).parent

PROGRAM = """
import sys
from datetime import timedelta
from pathlib import Path

import strom
from strom import StreamExecutionEnvironment, TumblingEventTimeWindows, WatermarkStrategy, sum_
from strom.core.native import library

env = StreamExecutionEnvironment.get_execution_environment()
rows = [{"k": f"k{n % 3}", "t": n * 100, "v": n} for n in range(100)]
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("t")
windows = (
    env.from_collection(rows)
    .assign_timestamps_and_watermarks(strategy)
    .key_by("k")
    .window(TumblingEventTimeWindows.of(timedelta(seconds=5)))
    .aggregate(total=sum_("v"))
)
with windows.execute_and_collect() as results:
    totals = {(row.k, row.window_start): row.total for row in results}
wanted = {}
for row in rows:
    group = row["k"], row["t"] // 5000 * 5000
    wanted[group] = wanted.get(group, 0) + row["v"]
assert totals == wanted, totals
loaded = library.load()
print(Path(strom.__file__).parent)
print(loaded and loaded.__file__)
print("numba" in sys.modules)
"""


class Installed:
    """A fresh environment with one wheel; what strom needs comes from the one of the tests."""

    def __init__(self, folder: Path, *options: str) -> None:
        made = folder / "wheels"
        self.run_here([str(ROOT / "scripts" / "wheel"), "--into", str(made), *options])
        (self.wheel,) = made.glob("*.whl")
        self.home = folder / "venv"
        self.empty = folder / "empty"
        self.empty.mkdir()
        self.run_here([sys.executable, "-m", "venv", "--without-pip", str(self.home)])
        pip = [sys.executable, "-m", "pip", "--python", str(self.home / "bin" / "python")]
        pip += ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
        self.run_here([*pip, str(self.wheel)])
        (self.site,) = self.home.glob("lib/python*/site-packages")
        needed = Path(pytest.__file__).parents[1]
        (self.site / "needed.pth").write_text(f"{needed}\n")

    @staticmethod
    def run_here(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, program: str, *arguments: str) -> tuple[str, str]:
        """Stdout and stderr of a program of the environment, from an empty folder."""
        private = {"HOME": str(self.empty), "XDG_CACHE_HOME": str(self.home / "cache")}
        environment = {**os.environ, **private}
        environment.pop("STROM_KERNELS", None)
        done = subprocess.run(
            [str(self.home / "bin" / program), *arguments],
            cwd=self.empty,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr


@pytest.mark.soak
def test_the_wheel_of_this_platform(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(
        rf"strom-[\d.]+-{python}-{python}-manylinux_2_\d+_{platform.machine()}\.whl",
        installed.wheel.name,
    )
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"strom", names[-1].split("/")[0]}
    assert {"strom/py.typed", "strom/benchmarks/peers.jsonl"} <= set(names)
    assert not [name for name in names if name.startswith(("strom/tests", "strom/scripts"))]

    printed, said = installed.run("python", "-c", PROGRAM)
    where, loaded, numba = printed.splitlines()
    assert Path(where) == installed.site / "strom"
    assert Path(loaded).parent == installed.site / "strom" / "core" / "native" / "shipped"
    assert (numba, said) == ("False", "")
    printed, _ = installed.run("strom", "--help")
    assert "doctor" in printed

    plain = [name for name in names if "strom_kernels-x86-64-" in name and "-v" not in name]
    assert len(plain) == (platform.machine() == "x86_64")
    for name in plain:  # for every processor: no register of AVX
        code = ["objdump", "-d", "--no-show-raw-insn", str(installed.site / name)]
        listed = subprocess.run(code, capture_output=True, text=True, check=True).stdout
        assert "%xmm" in listed
        assert not re.search(r"%[yz]mm", listed)
        for better in Path(loaded).parent.glob("strom_kernels-x86-64-v*"):
            better.unlink()
        printed, _ = installed.run("python", "-c", PROGRAM)
        assert printed.splitlines()[1:] == [str(installed.site / name), "False"]


@pytest.mark.soak
def test_the_wheel_of_all_platforms(tmp_path: Path) -> None:
    installed = Installed(tmp_path, "--pure")
    assert re.fullmatch(r"strom-[\d.]+-py3-none-any\.whl", installed.wheel.name)
    printed, said = installed.run("python", "-c", PROGRAM)
    where, loaded, numba = printed.splitlines()
    assert Path(where) == installed.site / "strom"
    assert (loaded, numba) == ("None", "True")
    assert said.count("no compiled kernels are there") == 1
    printed, _ = installed.run("strom", "bench", "--help")
    assert "nexmark" in printed
