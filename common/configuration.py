"""The names of `pyflink.common.configuration`."""

from ..api.configuration.configuration import Configuration as Configuration
