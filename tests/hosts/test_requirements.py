"""What a requirements file says, whether it is there, and what Ray is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import strom
from strom import ConfigurationError
from strom.core.job_files import Requirements
from strom.engine.hosts.requirements import (
    check_installed,
    lines_of,
    not_installed,
    runtime_env,
    why_not_installed,
)
from wheels_kit import make_wheel


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a package in two versions, of which one is installed."""
    (tmp_path / "wheels").mkdir()
    for version in ("1.5", "2.0"):
        make_wheel(tmp_path / "wheels", "strom_tiny", version, "")
    return tmp_path


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(here / "wheels" / "strom_tiny-1.5-py3-none-any.whl"))
    return here


def requirements(folder: Path, text: str, cache: str | None = None) -> Requirements:
    (folder / "requirements.txt").write_text(text)
    return Requirements(str(folder / "requirements.txt"), cache)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n\n",
        "strom_tiny",
        "strom-tiny >= 1.0, < 2 # as it should be",
        "STROM.tiny==1.5 \\\n  --hash=sha256:00",
        "strom_tiny; python_version >= '3'",
        "nowhere_at_all; python_version < '3'",
        "--extra-index-url https://example.invalid/simple\nstrom_tiny[extra]~=1.4\npyarrow",
        "https://example.invalid/strom_tiny-1.5-py3-none-any.whl",
        "strom_tiny @ https://example.invalid/strom_tiny-9.whl",
    ],
)
def test_what_is_installed_will_do(installed: Path, text: str) -> None:
    check_installed(requirements(installed, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strom_tiny>=2", "strom_tiny 1.5 is installed, not >=2"),
        ("nowhere_at_all>1", "nowhere_at_all is not installed"),
        ("strom_tiny==2.*\nnowhere_at_all", r"strom_tiny 1.5 is .*==2\.\*; nowhere_at_all is not"),
        ("https://example.invalid/strom_tiny-2.0-py3-none-any.whl", "strom-tiny 1.5 is installed"),
        ("strom_tiny=>2", "'strom_tiny=>2' is no requirement"),
        ("https://example.invalid/tiny.zip", "is no requirement"),
    ],
)
def test_what_is_not_is_named(installed: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_installed(requirements(installed, text))


def test_a_job_on_the_local_host_is_refused_that_lacks_some(installed: Path) -> None:
    env = strom.StreamExecutionEnvironment.get_execution_environment()
    requirements(installed, "strom_tiny<2")
    env.set_python_requirements(str(installed / "requirements.txt"))
    assert env.from_collection([1]).map(str).execute_and_collect(limit=1) == ["1"]
    requirements(installed, "strom_tiny<1")
    with pytest.raises(ConfigurationError, match=r"not <1\. On the local host .*`pip install -r"):
        env.from_collection([1]).map(str).execute_and_collect(limit=1)


def test_files_that_are_included(here: Path) -> None:
    (here / "deep").mkdir()
    (here / "deep" / "more.txt").write_text("-r last.txt\nb<2\n")
    (here / "deep" / "last.txt").write_text("c # the last\n")
    file = requirements(here, "a\n--requirement=deep/more.txt\n-i https://example.invalid\n").file
    assert lines_of(file) == ["a", "c", "b<2", "-i https://example.invalid"]
    (here / "deep" / "last.txt").write_text("-r more.txt")
    with pytest.raises(ConfigurationError, match=r"more\.txt includes itself"):
        lines_of(file)
    (here / "deep" / "last.txt").unlink()
    with pytest.raises(ConfigurationError, match=r"last\.txt cannot be read: "):
        lines_of(file)


@pytest.mark.parametrize(
    "line", ["-e .", "./tiny.whl", "/opt/tiny.whl", "-c some.txt", "tiny @ file:///opt/tiny.whl"]
)
def test_what_other_machines_lack_is_refused(here: Path, line: str) -> None:
    with pytest.raises(ConfigurationError, match="a file of this machine, which others lack"):
        lines_of(requirements(here, line).file)


def test_what_ray_is_asked_for(here: Path) -> None:
    asked = runtime_env(requirements(here, "strom_tiny<2 # not 2"), {"pip": ["other"]})
    assert asked is not None
    assert asked["pip"]["packages"] == ["other", "strom_tiny<2"]
    asked = runtime_env(requirements(here, "strom_tiny<2 # not 2"), {})
    assert asked is not None
    assert asked["pip"]["packages"] == ["strom_tiny<2"]
    assert "--no-index" not in asked["pip"]["pip_install_options"]
    # Beside what the program has asked for; from the folder alone.
    current: dict[str, Any] = {
        "env_vars": {"A": "b"},
        "pip": {"packages": ["other"], "pip_check": False},
    }
    offline = requirements(here, "strom_tiny<2", str(here / "wheels"))
    asked = runtime_env(offline, current)
    assert asked is not None
    assert asked["pip"]["packages"][:2] == ["other", "strom_tiny<2"]
    options = asked["pip"]["pip_install_options"]
    assert options[-3:] == ["--no-index", "--find-links", str(here / "wheels")]
    # Ray makes another environment when there are others in the folder.
    assert runtime_env(offline, current) == asked
    os.utime(here / "wheels" / "strom_tiny-1.5-py3-none-any.whl", ns=(1, 1))
    assert runtime_env(offline, current) != asked
    with pytest.raises(ConfigurationError, match="packages by conda"):
        runtime_env(offline, {"conda": "mine"})
    assert runtime_env(requirements(here, "# none"), current) == current
    assert runtime_env(requirements(here, "# none"), {}) is None
    assert runtime_env(None, {}) is None


def test_what_the_job_is_given_is_added_to_what_its_program_has() -> None:
    current = {"env_vars": {"A": "1", "B": "1"}, "working_dir": "gcs://x.zip", "pip": ["one"]}
    given = {"env_vars": {"B": "2"}, "pip": {"packages": ["two", "one"], "pip_check": True}}
    assert runtime_env(None, current, given) == {
        "env_vars": {"A": "1", "B": "2"},
        "working_dir": "gcs://x.zip",
        "pip": {"packages": ["one", "two"], "pip_check": True},
    }
    assert runtime_env(None, {"conda": "mine"}) == {"conda": "mine"}
    with pytest.raises(ConfigurationError, match="packages by conda"):
        runtime_env(None, {"conda": "mine"}, {"pip": ["one"]})


def test_why_packages_could_not_be_installed() -> None:
    account = "Traceback\nOutput: Looking\nERROR: No matching distribution found for x\nmore\n"
    text = why_not_installed(Requirements("/r.txt", "/wheels"), account)
    assert text == (
        "the packages of /r.txt could not be installed from /wheels, which all nodes must reach: "
        "ERROR: No matching distribution found for x"
    )
    assert why_not_installed(Requirements("/r.txt"), "a\nb").endswith("not be installed: a b")

    class RuntimeEnvSetupError(Exception):
        """Called as Ray's."""

    error = not_installed(Requirements("/r.txt"), RuntimeEnvSetupError(account))
    assert isinstance(error, ConfigurationError)
    assert "No matching distribution" in str(error)
    assert not_installed(None, RuntimeEnvSetupError(account)) is None
    assert not_installed(Requirements("/r.txt"), ValueError(account)) is None
