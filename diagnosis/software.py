"""Checks of what is installed: Python, strom and its kernels, Ray, Arrow, RocksDB, Spark."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..core.errors import ConfigurationError
from .findings import OK, PROBLEM, SKIPPED, WARNING, Finding, worst
from .probing import Ask, ProbeError
from .versions import PACKAGE, Installed, Wanted, judged, judged_together

APART: Final = frozenset({"ray", "pyarrow", "rocksdict"})
"""Requirements with a check of their own."""

BUILD: Final = "python -m strom.core.native.build"

PROBE_S: Final = 30.0
"""For a Python that imports what is asked of it, on a busy machine."""

NOT_INSTALLED: Final = Finding(
    WARNING,
    "strom is imported, but not installed: what it asks of other packages is not known",
    "pip install strom, or from a checkout: scripts/setup",
)


def python(wanted: Wanted | None, version: str) -> Finding:
    """Whether this Python is one that strom runs on."""
    found = f"{version} ({platform.machine()})"
    if wanted is None:
        return Finding(OK, found)
    if wanted.python.contains(version, prereleases=True):
        return Finding(OK, found)
    return Finding(
        PROBLEM,
        f"{found}; strom needs {wanted.python}",
        "make a virtual environment of such a Python, and install strom there",
    )


def strom(version: str | None, folder: Path) -> Finding:
    """Which strom this is, and where it lies."""
    if version is None:
        return NOT_INSTALLED
    return Finding(OK, f"{version}, in {folder}")


def kernels(ask: Ask) -> Finding:
    """What runs the kernels, and whether they compute what they should."""
    try:
        answer = ask("kernels", limit_s=PROBE_S)
    except ProbeError as error:
        return Finding(
            PROBLEM,
            f"neither compiled kernels nor numba run: {error}",
            f"pip install --force-reinstall numba strom; then, if there is a C compiler: {BUILD}",
        )
    if not answer["right"]:
        return Finding(
            PROBLEM,
            f"{answer['library'] or 'numba'}: wrong hashes, so keys would go astray",
            f"remove that library, make it anew ({BUILD}), and report this",
        )
    if answer["library"] is not None:
        return Finding(OK, f"compiled, in {answer['library']}")
    said = "; ".join(answer["said"]) or "numba compiles them in each process"
    return Finding(
        WARNING,
        said,
        f"install strom's wheel for this platform, or with a C compiler: {BUILD}",
    )


def packages(wanted: Wanted | None, version_of: Installed) -> Finding:
    """All requirements without a check of their own."""
    if wanted is None:
        return NOT_INSTALLED
    return judged_together(wanted.of(), version_of, APART)


def ray(wanted: Wanted | None, version_of: Installed) -> Finding:
    """Whether there is a Ray, of a version that strom was made for."""
    return _required("ray", wanted, version_of)


def pyarrow(wanted: Wanted | None, version_of: Installed, ask: Ask) -> Finding:
    """Whether Arrow is there and loads."""
    found = _required("pyarrow", wanted, version_of)
    if found.status == PROBLEM:
        return found
    return _running(found, "pyarrow", lambda: ask("load", {"module": "pyarrow"}, PROBE_S))


def rocksdict(wanted: Wanted | None, version_of: Installed, ask: Ask) -> Finding:
    """Whether RocksDB is there and keeps what it is given."""
    found = _required("rocksdict", wanted, version_of)
    if found.status == PROBLEM:
        return found
    return _running(found, "rocksdict", lambda: ask("rocks", None, PROBE_S))


def _required(name: str, wanted: Wanted | None, version_of: Installed) -> Finding:
    version = version_of(name)
    if wanted is None or name not in wanted.of():
        if version is None:
            return Finding(PROBLEM, f"{name} is not installed", f"pip install {name}")
        return Finding(OK, version)
    return judged(wanted.of()[name], version)


def _running(found: Finding, name: str, probe: Any) -> Finding:
    try:
        answer = probe()
    except ProbeError as error:
        return Finding(
            PROBLEM,
            f"{found.found} does not work here: {error}",
            f"pip install --force-reinstall {name}; see that the temporary folder can be written, "
            "and that the package is made for this processor",
        )
    if not answer.get("same", True):
        return Finding(PROBLEM, f"{found.found} gives back other than it was given", "see the disk")
    return found


def spark(wanted: Wanted | None, version_of: Installed, asked: bool) -> Finding:
    """PySpark and RayDP, where they are installed or asked for."""
    versions = {name: version_of(name) for name in ("pyspark", "raydp")}
    if not asked and not any(versions.values()):
        return Finding(SKIPPED, "not installed, and not asked for (--spark)")
    findings = []
    for name, version in versions.items():
        requirement = None if wanted is None else wanted.of("spark").get(name)
        if requirement is not None:
            findings.append((name, judged(requirement, version)))
        elif version is None:
            findings.append((name, Finding(PROBLEM, f"{name} is not installed")))
        else:
            findings.append((name, Finding(OK, version)))
    wrong = "; ".join(one.found for _, one in findings if one.status != OK)
    if wrong:
        status = worst(one.status for _, one in findings)
        return Finding(status, wrong, f"pip install '{PACKAGE}[spark]'")
    return Finding(OK, ", ".join(f"{name} {one.found}" for name, one in findings))


def java(environment: Mapping[str, str], needed: bool) -> Finding:
    """Whether Spark would find a Java that it runs on."""
    if not needed:
        return Finding(SKIPPED, "only Spark's connectors need one")
    from ..connectors.spark.java import java_major, spark_environment

    home = environment.get("JAVA_HOME")
    told = f"JAVA_HOME is {home}" if home else "JAVA_HOME is not set"
    try:
        changes = spark_environment(environment)
    except ConfigurationError as error:
        return Finding(PROBLEM, f"{error} ({told})", "install a Java 17, and set JAVA_HOME to it")
    command = shutil.which("java", path=changes.get("PATH", environment.get("PATH", os.defpath)))
    major = None if command is None else java_major(command)
    if "PATH" not in changes:
        return Finding(OK, f"Java {major}, {command}; {told}")
    return Finding(
        OK,
        f"Java {major}, {command}, which strom puts on the PATH of a Ray that it starts; {told}",
        "a Ray that you start yourself needs the variables of "
        "strom.connectors.spark.spark_environment()",
    )
