"""Which actor is a job's coordinator.

Ray finds an actor only by the name that it was made with. Most coordinators are made for their job,
and named after it (`coordinator_name`). One that was ready before its job was there
(`ready_coordinators`) has a name of its own. Whose it is says an entry in Ray's key-value store:

    "<job id> <actor's name>"  ->  what the actor became that job's coordinator with

The job is in the key, so that one listing of keys tells of one job, or of all. The value is read by
that actor alone, when it comes back in another process.

An entry is written by its actor, before that is the job's coordinator, and removed by it as it
leaves for good. What is left of one that was killed for good means nothing: an entry counts as long
as there is an actor of that name, and is removed by `withdraw`, or by the session (`forget_lost`).

Whatever its actor is named, slots and tasks of a job, and what its coordinator has taken, are
called after `coordinator_name`.

All functions but `came_back` ask Ray's control service and nobody else, and may be called again
(`patiently`).
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any, Final, NamedTuple

import ray
from ray.experimental import internal_kv
from ray.util import list_named_actors

from .coordinator_answers import coordinator_name
from .ray_connect import NAMESPACE

APPOINTED: Final = b"strom-appointed"
"""The namespace of the entries."""


class Appointment(NamedTuple):
    """Which job has the actor of this name, or had it when there was one."""

    job_id: str
    actor: str

    @property
    def key(self) -> bytes:
        return f"{self.job_id} {self.actor}".encode()


def find_coordinator(job_id: str) -> Any:
    """Its handle. ValueError if the job has none."""
    try:
        return ray.get_actor(coordinator_name(job_id), namespace=NAMESPACE)
    except ValueError:
        for one in appointments(job_id):
            with suppress(ValueError):
                return ray.get_actor(one.actor, namespace=NAMESPACE)
        raise


def jobs_with_coordinators() -> list[str]:
    """The ids of all jobs that have one."""
    appointed = appointments()  # an actor is there before its entry: so it is looked for afterwards
    there, prefix = named_actors(), coordinator_name("")
    named = [name.removeprefix(prefix) for name in there if name.startswith(prefix)]
    return [*dict.fromkeys([*named, *(job_id for job_id, actor in appointed if actor in there)])]


def named_actors() -> dict[str, None]:
    """The names of strom's actors that are not dead for good."""
    listed: list[Any] = list_named_actors(all_namespaces=True)
    return dict.fromkeys(one["name"] for one in listed if one["namespace"] == NAMESPACE)


# --- entries -------------------------------------------------------------------------------------


def appointments(job_id: str | None = None) -> list[Appointment]:
    """Of a job, or of all; the actors may be gone."""
    prefix = b"" if job_id is None else f"{job_id} ".encode()
    keys = internal_kv._internal_kv_list(prefix, namespace=APPOINTED)
    return [Appointment(*bytes(key).decode().rsplit(" ", 1)) for key in keys]


def appoint(one: Appointment, arguments: bytes) -> None:
    internal_kv._internal_kv_put(one.key, arguments, namespace=APPOINTED)


def arguments_of(actor: str) -> bytes | None:
    """What the actor of this name became a coordinator with; None: it has not."""
    for one in appointments():
        if one.actor == actor:
            found: bytes | None = internal_kv._internal_kv_get(one.key, namespace=APPOINTED)
            return found
    return None


def forget(one: Appointment) -> None:
    """The actor is this job's coordinator no more, or was not."""
    internal_kv._internal_kv_del(one.key, namespace=APPOINTED)


def forget_job(job_id: str) -> None:
    """No actor is this job's coordinator."""
    prefix = f"{job_id} ".encode()
    internal_kv._internal_kv_del(prefix, del_by_prefix=True, namespace=APPOINTED)


def forget_lost() -> None:
    """Remove entries whose actors are gone."""
    appointed = appointments()  # as in `jobs_with_coordinators`
    there = named_actors() if appointed else {}
    for one in appointed:
        if one.actor not in there:
            forget(one)


def came_back() -> bool:
    """Whether this process has been started by Ray for an actor that had one before."""
    if not ray.is_initialized():
        return False
    with warnings.catch_warnings():  # Ray asks itself for what it has deprecated
        warnings.simplefilter("ignore")
        return bool(ray.get_runtime_context().was_current_actor_reconstructed)
