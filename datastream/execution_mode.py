"""The names of `pyflink.datastream.execution_mode`."""

from ..api.configuration.modes import RuntimeExecutionMode as RuntimeExecutionMode
