"""The names of `pyflink.common.restart_strategy`."""

from ..api.jobs.restart_strategies import RestartStrategies as RestartStrategies
from ..core.config import RestartStrategyConfiguration as RestartStrategyConfiguration
