"""The names of `pyflink.metrics`, which load their modules on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy_names

if TYPE_CHECKING:
    from .metricbase import Counter as Counter
    from .metricbase import Distribution as Distribution
    from .metricbase import Meter as Meter
    from .metricbase import MetricGroup as MetricGroup

_NAMES = {
    "metricbase": "Counter Distribution Meter MetricGroup",
}

__all__, __getattr__ = lazy_names(__name__, _NAMES)
