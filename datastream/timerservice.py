"""The names of `pyflink.datastream.timerservice`."""

from ..api.functions.user_functions import TimerService as TimerService
