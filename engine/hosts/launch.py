"""What a job on Ray is started from, and its coordinator made of that: by the program that
submits it, or by whoever starts it for that program.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import get_placement_group

from ...core import code_pickles
from ..graph.model import JobGraph
from .added_slots import give_back_added
from .control_service import patiently
from .coordinator_answers import Farewell, coordinator_name
from .coordinator_names import find_coordinator, forget_job
from .job_record import Begun, JobRecord
from .kept_slots import KeptSlots
from .placed_files import Content, contents_of
from .ray_connect import NAMESPACE
from .ray_coordinator import JobCoordinator
from .requirements import runtime_env
from .savepoint_calls import absolute
from .shipped_code import PackedCode, pack
from .slots import await_made, give_back

WITHDRAWAL_S = 3.0
"""How long slots are looked for that a killed coordinator had just asked for."""

CANCELLING_S = 5.0
"""How long a coordinator has to take note that it is not wanted, and again to end its job."""


@dataclass(frozen=True)
class Submission:
    """All that a job needs to start on a machine that knows nothing of its program."""

    job_id: str
    payload: bytes
    """The pickled job graph, which nobody but the job's own processes unpickles."""
    code: tuple[PackedCode, ...] = ()
    contents: Mapping[str, Content] = field(default_factory=dict)
    packages: Mapping[str, Any] | None = None
    """Ray's runtime environment of the job's processes, if it is not that of all."""
    claimed: str | None = None
    """The savepoint that it starts from, whatever its graph says, and which is its own then."""
    checkpoints: str | None = None
    """Where its checkpoints are; None: it has no storage for them."""

    def begun(self, first_attempt: int = 0) -> Begun:
        """What its coordinator is told to `start`. `first_attempt`: greater than any that the job
        had under coordinators before this, which have left nothing to go on from."""
        return Begun(self.payload, self.code, self.contents, first_attempt, self.claimed)


def submission_of(graph: JobGraph, job_id: str) -> Submission:
    """Reads the program's files. ConfigurationError, SerializationError."""
    savepoints = absolute(graph.config.savepoint_directory)
    graph = replace(graph, config=replace(graph.config, savepoint_directory=savepoints))
    current = ray.get_runtime_context().runtime_env
    packages = runtime_env(graph.config.job_files.requirements, current, graph.config.runtime_env)
    return Submission(
        job_id,
        code_pickles.dumps(graph),
        pack(graph.config.python_files),
        contents_of(graph.config.job_files),
        packages,
        checkpoints=graph.config.checkpoint.storage,
    )


@cache
def _actor() -> Any:
    """Made once: Ray keeps a copy of the class for each time."""
    return ray.remote(JobCoordinator)


def make_coordinator(
    submission: Submission,
    slots: KeptSlots | None = None,
    farewell: Farewell | None = None,
) -> Any:
    """A new coordinator, which is still to be told to `start`: on this node, if there is a choice,
    so that as few nodes as can be have a part in the job's fate. `slots`, `farewell`: as of
    `JobCoordinator`. ValueError if the job has one."""
    packages = {} if submission.packages is None else {"runtime_env": submission.packages}
    actor = _actor().options(**coordinator_options(coordinator_name(submission.job_id)), **packages)
    return actor.remote(submission.job_id, submission.checkpoints, slots, farewell)


def coordinator_options(name: str) -> dict[str, Any]:
    """How Ray makes a coordinator under this name, and makes it again whenever its process dies:
    on this node, if there is a choice."""
    # Not NodeAffinitySchedulingStrategy(soft=True): Ray (2.60) forgets it of actors without CPUs.
    return {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "label_selector": {"ray.io/node-id": home_node()},
        "fallback_strategy": [{"label_selector": {}}],
    }


def home_node() -> str:
    """Ray's id of the node that this program is on, or is connected to."""
    return str(ray.get_runtime_context().get_node_id())


def withdraw(job_id: str, record: JobRecord | None = None) -> None:
    """End a job whose start broke off, with its slots; takes seconds. Its coordinator, which may be
    about to ask for these, is told first, and killed when it is done, or silent, and its slots are
    not just being made. What Ray hears of only after a death it keeps: that is looked for by its
    name. `record`: what it has left, which goes, too; None: another run may go on from that."""
    name = coordinator_name(job_id)
    with suppress(Exception):
        coordinator = find_coordinator(job_id)
        try:
            _cancelled(coordinator)
            with suppress(Exception):  # above all ValueError: there are none
                await_made(get_placement_group(name))
        finally:  # also if one of these waits is interrupted
            ray.kill(coordinator, no_restart=True)
            patiently(partial(forget_job, job_id))
        deadline = time.monotonic() + WITHDRAWAL_S
        while time.monotonic() < deadline:
            with suppress(ValueError):  # there is none, or none yet
                give_back(get_placement_group(name))
            time.sleep(0.1)
        give_back_added(name)
    if record is not None:
        record.remove()


def _cancelled(coordinator: Any) -> None:
    """Wait for the job's end."""
    with suppress(RayError):  # the coordinator is gone, or too slow
        ray.get(coordinator.cancel.remote(), timeout=CANCELLING_S)
        ray.get(coordinator.outcome.remote(CANCELLING_S), timeout=CANCELLING_S)
