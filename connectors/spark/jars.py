"""Jars from Maven Central by their coordinates, with all that they need.

They are resolved by the Ivy that PySpark brings along, once: what was found lies in a folder of the
user's cache (`$STROM_JARS`, else `strom/jars` in `$XDG_CACHE_HOME` or `~/.cache`) from then on. On
a machine without a network, copy that folder there, or name one with the jars.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...core.errors import ConfigurationError
from .java import spark_environment

FOLDER: Final = "STROM_JARS"

TIMEOUT_S: Final = 600.0

_SHOWN: Final = 12
"""Lines of Ivy's complaint that a message quotes."""


def jars_of(coordinates: Sequence[str]) -> list[Path]:
    """The jars of `group:artifact:version` each, and of what they depend on, in order of names.

    The first call with these coordinates downloads them (some seconds to a minute), later ones read
    a folder. Safe to call from several processes at once. Raises ConfigurationError when a
    coordinate is no coordinate, or when the jars are not there and cannot be had."""
    wanted = sorted(dict.fromkeys(coordinates))
    for one in wanted:
        if len(one.split(":")) != 3 or not all(one.split(":")):
            raise ConfigurationError(f"'{one}' is no Maven coordinate: group:artifact:version")
    folder = cache() / _name(wanted)
    if not folder.is_dir():
        _download(wanted, folder)
    return sorted(folder.glob("*.jar"))


def cache() -> Path:
    """Where jars are kept."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "strom" / "jars"


def _name(wanted: list[str]) -> str:
    """Readable, and another one for other coordinates."""
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:8]
    artifacts = "+".join("-".join(one.split(":")[1:]) for one in wanted)
    return f"{artifacts[:80]}-{digest}"


def _download(wanted: list[str], folder: Path) -> None:
    """Into a folder beside the wanted one, which gets its name when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        jars = work / "jars"
        jars.mkdir()
        _resolve(wanted, work, jars)
        try:
            jars.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _resolve(wanted: list[str], work: Path, jars: Path) -> None:
    description = work / "ivy.xml"
    description.write_text(_description(wanted))
    pattern = f"{jars}/[artifact]-[revision](-[classifier]).[ext]"
    command = [
        *(_java(), f"-Divy.default.ivy.user.dir={work / '.ivy'}", "-jar", str(_ivy())),
        *("-ivy", str(description), "-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", pattern, "-warn"),
    ]
    what = ", ".join(wanted)
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"the jars of {what} were not loaded within {TIMEOUT_S:.0f} s: is Maven Central in "
            f"reach? Else put them into a folder and name it"
        ) from None
    if done.returncode or not any(jars.iterdir()):
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ConfigurationError(
            f"the jars of {what} cannot be had from Maven Central; without a network, copy the "
            f"folder {cache()} from a machine that has them: {'; '.join(said[-_SHOWN:])}"
        )


def _description(wanted: list[str]) -> str:
    """Ivy's: a module that needs the wanted ones to run."""
    needs = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->runtime,master"/>'.format(
            *one.split(":")
        )
        for one in wanted
    )
    return (
        '<ivy-module version="2.0"><info organisation="strom" module="wanted"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{needs}'
        "</dependencies></ivy-module>"
    )


def _java() -> str:
    environment = {**os.environ, **spark_environment()}
    found = shutil.which("java", path=environment["PATH"])
    assert found is not None, "spark_environment has found one"
    return found


def _ivy() -> Path:
    try:
        import pyspark
    except ImportError:
        raise ConfigurationError(
            "jars are resolved by the Ivy that PySpark brings along: pip install 'strom[spark]'"
        ) from None
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ConfigurationError("this PySpark has no Ivy among its jars")
    return found[0]
