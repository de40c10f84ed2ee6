"""The names of `pyflink.datastream.time_domain`."""

from ..api.functions.user_functions import TimeDomain as TimeDomain
