"""All checks of an environment, in the order in which a person would make them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from ..api.configuration.applying import ambient_configuration, configure
from ..api.configuration.configuration import Configuration
from ..api.configuration.settings import Settings
from ..api.configuration.values import folders_in
from ..checkpoint.secrets import shown_url
from ..core.config import JobConfig
from ..core.errors import ConfigurationError
from ..engine.hosts.ray_connect import named_cluster
from . import cluster, machine, software, storage
from .findings import OK, PROBLEM, Check, Finding
from .probing import Ask, ask
from .versions import Installed, Wanted, installed, wanted

LOCAL_FOLDERS: Final = (
    "state.backend.rocksdb.localdir",
    "execution.checkpointing.local-backup.dirs",
)
"""Options that name folders on each machine; without them it is the temporary one."""


@dataclass(frozen=True)
class Request:
    """What to look at. `address`: of a Ray cluster, as for `ray.init`. `local_dirs`: folders for
    local state; none: as the configuration says. `storages`: URLs. `spark`: also where it is not
    installed."""

    address: str | None = None
    local_dirs: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    spark: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What checks ask; tests hand in other answers."""

    environment: Mapping[str, str]
    wanted: Wanted | None
    installed: Installed
    ask: Ask

    @staticmethod
    def here() -> Surroundings:
        return Surroundings(os.environ, wanted(), installed, ask)


def checkup(request: Request, around: Surroundings) -> list[Check]:
    """The checks, of which none has been made yet."""
    return [
        *_of_software(request, around),
        *_of_machine(request, around),
        *_of_cluster(request, around),
        *(
            Check(
                f"storage {shown_url(url)}",
                partial(storage.storage, url, around.ask),
                _behind(storage.STORAGE_S),
            )
            for url in request.storages
        ),
    ]


def _of_software(request: Request, around: Surroundings) -> list[Check]:
    needed, version_of, ask = around.wanted, around.installed, around.ask
    has_spark = request.spark or version_of("pyspark") is not None
    slow = _behind(software.PROBE_S)
    folder = Path(__file__).parents[1]
    return [
        Check("python", lambda: software.python(needed, platform.python_version())),
        Check("strom", lambda: software.strom(version_of("strom"), folder)),
        Check("kernels", lambda: software.kernels(ask), slow),
        Check("packages", lambda: software.packages(needed, version_of)),
        Check("ray", lambda: software.ray(needed, version_of)),
        Check("pyarrow", lambda: software.pyarrow(needed, version_of, ask), slow),
        Check("rocksdict", lambda: software.rocksdict(needed, version_of, ask), slow),
        Check("spark", lambda: software.spark(needed, version_of, request.spark)),
        Check("java", lambda: software.java(around.environment, has_spark), 60),
        Check("configuration", lambda: configuration(around.environment)),
    ]


def _of_machine(request: Request, around: Surroundings) -> list[Check]:
    folders = local_folders(request, around.environment)
    checks = [
        Check("shared memory", _shared_memory),
        Check("open files", lambda: machine.open_files(*machine.open_files_limit())),
        Check("loopback", machine.loopback),
        Check("ray's ports", partial(_ray_ports, request.address)),
    ]
    for folder, option in folders:
        checks.append(Check(f"local folder {folder}", partial(_local_folder, folder, option), 20))
    return checks


def _of_cluster(request: Request, around: Surroundings) -> list[Check]:
    answer = cluster.joined(request.address, around.ask)
    version_of = around.installed
    ours: dict[str, str | None] = {"python": platform.python_version()}
    ours |= {name: version_of(name) for name in ("ray", "strom")}
    found = named_cluster(request.address)
    named = None if found is None else f"{found.address} ({found.source})"
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("cluster", lambda: cluster.reached(named, answer)),
    ]
    if named is not None:
        bind_host = _ambient(around.environment).get_string(cluster.BIND_HOST, "")
        checks.append(("cluster's nodes", lambda: cluster.nodes(ours, answer)))
        checks.append(("tasks' address", lambda: cluster.listening(bind_host, answer)))
        checks.append(("cluster's clocks", lambda: cluster.clocks(answer)))
    return [Check(name, examine, _behind(cluster.JOIN_S)) for name, examine in checks]


def _behind(limit_s: float) -> float:
    """A limit for a check that waits so long for a probe: the probe says what went wrong."""
    return limit_s + 10


def configuration(environment: Mapping[str, str]) -> Finding:
    """Whether the options of the environment, and of the file that it names, can be used."""
    try:
        found = ambient_configuration(environment)
        settings = Settings.of(JobConfig())
        configure(settings, found)
        settings.job_config()
    except ConfigurationError as error:
        return Finding(PROBLEM, str(error), "correct it: docs/configuration.md has all options")
    return Finding(OK, f"{len(found)} options from environment and file")


def local_folders(request: Request, environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Where local state would lie, each with the option that says so."""
    if request.local_dirs:
        return [(Path(one), LOCAL_FOLDERS[0]) for one in dict.fromkeys(request.local_dirs)]
    found = _ambient(environment)
    folders: dict[Path, str] = {}
    for option in LOCAL_FOLDERS:
        for one in folders_in(found.get_string(option, "")) or (gettempdir(),):
            folders.setdefault(Path(one), option)
    return list(folders.items())


def _ambient(environment: Mapping[str, str]) -> Configuration:
    """What the environment says; nothing, where the check `configuration` says what is wrong."""
    try:
        return ambient_configuration(environment)
    except ConfigurationError:
        return Configuration()


def _shared_memory() -> Finding:
    import psutil

    room = machine.shared_memory_of(machine.SHARED_MEMORY)
    return machine.shared_memory(room, psutil.virtual_memory().total)


def _ray_ports(address: str | None) -> Finding:
    found = named_cluster(address)
    taken = machine.taken_ports(machine.RAY_PORTS) if found is None else []
    return machine.ray_ports(taken, None if found is None else found.address)


def _local_folder(folder: Path, option: str) -> Finding:
    try:
        tried = machine.tried_folder(folder)
    except OSError as error:
        return machine.folder_refused(error, option)
    return machine.local_folder(tried, option)
