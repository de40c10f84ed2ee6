"""The names of `pyflink.common.execution_config`."""

from ..api.configuration.execution_config import ExecutionConfig as ExecutionConfig
