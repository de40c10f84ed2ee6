"""The names of `pyflink.common.job_client`."""

from ..api.jobs.host import JobClient as JobClient
