"""Mail as it leaves for a task: what users' code put into it is checked and closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...core.errors import OperatorError, SerializationError
from ...core.failure_text import described
from ...core.ids import Attempt, TaskId
from ..exchange.endpoint import Address
from ..exchange.pickling import parcel
from ..graph.model import JobVertex
from ..messages import Mail, Rewire, SplitsAssigned, TaskFailed
from ..task.deployment import TaskDeployment


def sealed(mail: Mail, task: TaskId, attempt: Attempt, vertex: JobVertex) -> Mail | TaskFailed:
    """The mail with its splits in a parcel, as the task opens it; or, if they cannot be sent, what
    the host reports in the task's name. `vertex`: the task's, whose head is the source."""
    if not isinstance(mail, SplitsAssigned):
        return mail
    try:
        return replace(mail, splits=parcel(mail.splits, "split", "the task that is to read it"))
    except SerializationError as error:
        name = vertex.operators[0].name
        return TaskFailed(task, attempt, str(OperatorError(name, task.subtask, described(error))))


def rewired(d: TaskDeployment, addresses: Mapping[TaskId, Address]) -> Rewire:
    """What a task that runs is told when it gets the channels of `d`."""
    peers = {channel.target: addresses[channel.target] for channel in d.outputs}
    return Rewire(d.wiring(peers), d.deals, d.shape)
