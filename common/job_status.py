"""The names of `pyflink.common.job_status`."""

from ..core.job_status import JobStatus as JobStatus
