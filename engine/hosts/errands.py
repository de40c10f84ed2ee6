"""What the driver has done beside its thread, because a disk or the user's code may take long.

Two workers, one for the checkpoint storage (`storage_errands`) and one for the enumerators and
sinks (`source_errands`). Each does one thing after the other in the order given, and its answers
come back in that order, as events of the job master; the driver takes them when it gets to it.
Where a worker runs is the host's business: a thread, or a step of the simulator.
"""

from __future__ import annotations

from ...checkpoint.storage import CheckpointStorage
from ...core.clock import Clock
from ..coordinator.job_master import JobMaster
from ..graph.model import JobGraph
from .errand_events import Event, MakeBackground
from .outputs import Outputs
from .result_log import ResultLog
from .source_errands import SourceAction, SourceErrands
from .storage_errands import StorageAction, StorageErrands
from .tenure import Tenure


class Errands:
    """The workers of one job. Used from the driver's thread."""

    def __init__(
        self,
        make_background: MakeBackground,
        master: JobMaster,
        job: JobGraph,
        storage: CheckpointStorage,
        clock: Clock,
        tenure: Tenure,
        outputs: Outputs,
        results: ResultLog | None = None,
    ) -> None:
        """The events that `take` returns are for `master`. `tenure`: of `storage`. `results`: as
        of `JobDriver`."""
        self._storage = StorageErrands(
            make_background, master, job, storage, clock, tenure, results
        )
        self._sources = SourceErrands(make_background, master, job, storage.job_id, outputs)

    @property
    def idle(self) -> bool:
        """Whether everything is done and taken, but for what was left behind."""
        return self._storage.idle and self._sources.idle

    @property
    def answered(self) -> bool:
        """Whether the sources have an answer to take."""
        return self._sources.answered

    @property
    def hanging(self) -> bool:
        """Whether the storage owes an answer that nobody waits for: what it is about may stay."""
        return self._storage.hanging

    @property
    def published(self) -> int:
        """Checkpoints published so far, told or not."""
        return self._storage.published

    @property
    def restored(self) -> CheckpointStorage:
        """Where the files of the manifest loaded last are."""
        return self._storage.loaded.storage

    @property
    def tokens(self) -> dict[str, str]:
        """What tasks show to sinks that were taken over, by operator."""
        return self._sources.outputs.tokens

    def on_running(self) -> None:
        """All tasks of the attempt have what they start from, and run."""
        self._storage.on_running()

    def take(self) -> Event | None:
        """The oldest answer, the storage's first; None if there is none."""
        return self._storage.take() or self._sources.take()

    def due_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return self._storage.due_ms()

    def on_time(self) -> bool:
        """Leave behind what has hung too long; whether anything was due."""
        return self._storage.on_time()

    def in_storage(self, action: StorageAction) -> None:
        """Begin this behind what was begun there before."""
        self._storage.begin(action)

    def in_sources(self, action: SourceAction) -> None:
        """Begin this behind what was begun there before."""
        self._sources.begin(action, self._storage.loaded)

    def adopt(self, job: JobGraph) -> None:
        """The job is this from now on: of vertices that change no task runs."""
        self._sources.adopt(job)

    def last(self, status: str) -> None:
        """The job is over, and nothing more will be asked."""
        self._storage.last()
        self._sources.release_outputs(status)

    def close(self) -> None:
        """Drop what has not begun, and the answers to the rest. Idle workers are gone then."""
        wait_s = 1.0 if self.idle else 0.0
        self._storage.close(wait_s)
        self._sources.close(wait_s)
