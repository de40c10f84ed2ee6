"""The names of `pyflink.common.job_execution_result`."""

from ..api.jobs.host import JobExecutionResult as JobExecutionResult
