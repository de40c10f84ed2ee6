"""The names of `pyflink.metrics.metricbase`."""

from ..api.functions.metrics import Counter as Counter
from ..api.functions.metrics import Distribution as Distribution
from ..api.functions.metrics import Meter as Meter
from ..api.functions.metrics import MetricGroup as MetricGroup
