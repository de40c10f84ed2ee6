"""The names of `pyflink.common.job_id`."""

from ..core.answered import JobID as JobID
