"""What becomes of a job's checkpoints when the job is over."""

from __future__ import annotations

from enum import Enum

from .job_status import JobStatus


class ExternalizedCheckpointRetention(Enum):
    """Whether checkpoints outlive their job. A job that only restarts keeps what it needs.

    RETAIN_ON_CANCELLATION: they do, however the job ends, also by FINISHED, where Flink removes
    them. DELETE_ON_CANCELLATION: only those of a job that failed do. NO_EXTERNALIZED_CHECKPOINTS:
    they never do.
    """

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2

    def removes(self, status: JobStatus) -> bool:
        """Whether a job that ended so takes its checkpoints along."""
        if self is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION:
            return False
        kept = self is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
        return status.is_terminal and not (kept and status is JobStatus.FAILED)
