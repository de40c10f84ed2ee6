"""Packages of a job on Ray, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import strom
from wheels_kit import make_wheel

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


PROGRAM = """
import sys
from pathlib import Path
import ray, strom

def plus(n):
    import strom_tiny
    return strom_tiny.plus(n)

def make(requirements=None):
    config = strom.JobConfig(restart=strom.NoRestart())
    env = strom.StreamExecutionEnvironment.get_execution_environment(config, host="ray")
    if requirements is not None:
        file = Path("requirements.txt")
        file.write_text(requirements)
        env.set_python_requirements(str(file), "wheels")
    return env

def told(call):
    try:
        call()
    except strom.StromError as error:
        return repr(error)

ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, namespace="strom")
env = make("strom_tiny<2  # the other one is broken\\n")
print(sorted(env.from_collection([1, 2]).map(plus).execute_and_collect(limit=2)))
print("strom_tiny" in sys.modules)
print(told(lambda: make().from_collection([1]).map(plus).execute_and_collect(limit=1)))
env = make("strom_tiny==3\\n")
env.from_collection([1]).sink_to(strom.DiscardSink())
print(told(lambda: env.execute("without its packages")))
"""


@pytest.mark.soak
def test_tasks_have_the_packages_of_their_job(tmp_path: Path) -> None:
    """Installed from a folder, without a network. Ray copies the virtual environment of its own
    Python for that: a small one, so that it does not take long."""
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "strom_tiny", "1.5", "def plus(n):\n    return n + 1\n")
    make_wheel(tmp_path / "wheels", "strom_tiny", "2.0", "raise ImportError\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    importable = [path for path in map(os.path.abspath, sys.path) if "packages" in path]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "strom").symlink_to(Path(strom.__file__).parent.resolve())
    (packages / "all.pth").write_text("\n".join([str(tmp_path / "source"), *importable]))

    python = str(tmp_path / "venv" / "bin" / "python")
    done = subprocess.run(
        [python, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    results, here, without, lacking = done.stdout.splitlines()
    assert (results, here) == ("[2, 3]", "False")
    assert without.startswith("JobFailedError")
    assert "No module named" in without, "another job has them not"
    assert lacking.startswith("ConfigurationError('the packages of ")
    assert f"requirements.txt could not be installed from {tmp_path / 'wheels'}, " in lacking
    assert "No matching distribution found for strom_tiny==3" in lacking
