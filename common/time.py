"""The names of `pyflink.common.time`."""

from ..api.types.durations import Duration as Duration, Instant as Instant, Time as Time
