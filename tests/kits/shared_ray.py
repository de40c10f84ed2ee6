"""One Ray for all modules that want as many CPUs of it: each new one takes ten seconds of the
processor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chaos_kit import HangError, until

CPUS = 8
"""Logical ones, of modules that do not care how many there are."""


@contextmanager
def ray_of(cpus: int = CPUS) -> Iterator[None]:
    """A Ray of this process's own with so many logical CPUs and nothing on it, for as long as a
    module needs it: what a module before had, if that left it as it was, else a new one."""
    have_ray(cpus)
    yield
    try:
        until(lambda: _unused(cpus), "nothing on Ray", 5.0)
    except HangError:  # what runs there still is not the next module's
        stop_ray()


def have_ray(cpus: int = CPUS) -> None:
    """The same for the rest of a module that leaves nothing there."""
    import ray
    from strom.engine.hosts.ray_host import connect_to_ray

    if ray.is_initialized() and ray.cluster_resources().get("CPU") != cpus:
        stop_ray()
    connect_to_ray(num_cpus=cpus, log_to_driver=False)


def _unused(cpus: int) -> bool:
    """Whether nothing runs there, but for coordinators, which answer for a while after the end."""
    import ray

    actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    coordinators = ("strom-job-", "strom-coordinator-")
    others = [actor for actor in actors if not actor["name"].startswith(coordinators)]
    return not others and ray.available_resources().get("CPU", 0) == cpus


def stop_ray() -> None:
    """The one of this process, if there is one."""
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
