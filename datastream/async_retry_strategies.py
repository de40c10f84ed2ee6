"""The names of `pyflink.datastream.async_retry_strategies`."""

from ..api.functions.async_functions import (
    ExponentialBackoffDelayRetryStrategy as ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy as FixedDelayRetryStrategy,
    NoRetryStrategy as NoRetryStrategy,
    RetryPredicate as RetryPredicate,
)
