"""The names of `pyflink.common.config_options`."""

from ..api.configuration.options import ConfigOption as ConfigOption, ConfigOptions as ConfigOptions
