"""The tasks of a driver's job: each is deployed in an attempt, and spoken to in that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...checkpoint.manifest import Manifest
from ...checkpoint.storage import CheckpointStorage
from ...core.ids import Attempt, TaskId
from ..accounts import TaskAccount
from ..coordinator.actions import DeployAll, DeployTasks
from ..graph.model import ExecutionGraph
from ..messages import Mail
from ..task.deployment import TaskDeployment, deployments_of
from .cluster import Cluster
from .errands import Errands


class DeployedTasks:
    """Of one job, on the driver's thread. `storage`: where its checkpoints go. `errands`: know
    where those are that it restores, and what its sinks know it by."""

    def __init__(
        self, job_id: str, cluster: Cluster, storage: CheckpointStorage, errands: Errands
    ) -> None:
        self._job_id = job_id
        self._cluster = cluster
        self._storage = storage
        self._errands = errands
        self._attempts: dict[TaskId, Attempt] = {}
        """In which each was deployed last."""

    def find(self, graph: ExecutionGraph) -> Sequence[TaskAccount]:
        """Those that another driver has left, which are this one's from now on."""
        accounts = self._cluster.take_over()
        newest = max((one.attempt for one in accounts), default=Attempt(0))
        self._attempts = {
            **dict.fromkeys(graph.tasks, newest),
            **{one.task: one.attempt for one in accounts},
        }
        return accounts

    def send(self, task: TaskId, mail: Mail) -> None:
        self._cluster.send(task, self._attempts[task], mail)

    def on_reached(self, mails: Iterable[tuple[TaskId, Attempt, Mail]]) -> None:
        """Tasks that start can be reached: what those that stay are told then."""
        for task, attempt, mail in mails:
            if self._attempts.get(task) == attempt:  # else it has begun again
                self._cluster.send(task, attempt, mail)

    def deploy(self, graph: ExecutionGraph, action: DeployAll) -> None:
        """Raises what keeps any of them from starting."""
        self._attempts = dict.fromkeys(graph.tasks, action.attempt)
        how = {"revoke": action.revoke, "halted": action.halted}
        tasks = self._deployments(graph, graph.tasks, action.attempt, action.restore, **how)
        self._cluster.deploy(tasks)

    def deploy_beside(self, graph: ExecutionGraph, action: DeployTasks) -> None:
        """The same; or the host hears of it later."""
        attempt, share = action.attempt, action.own_share
        self._attempts.update(dict.fromkeys(action.tasks, attempt))
        tasks = self._deployments(graph, action.tasks, attempt, action.restore, own_share=share)
        stays = self._deployments(graph, action.stays, attempt, None)
        self._cluster.deploy_beside(tasks, stays)

    def _deployments(
        self,
        graph: ExecutionGraph,
        tasks: Sequence[TaskId],
        attempt: Attempt,
        restore: Manifest | None,
        **how: Any,
    ) -> list[TaskDeployment]:
        """`how`: as of `deployments_of`."""
        errands = self._errands
        return deployments_of(
            tasks,
            graph,
            attempt,
            self._job_id,
            self._storage,
            restore,
            errands.restored,
            tokens=errands.tokens,
            **how,
        )
