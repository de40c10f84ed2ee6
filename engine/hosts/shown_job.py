"""What one looks at a job by: part of all hosts' clients."""

from __future__ import annotations

from datetime import timedelta

from ...core.checks import check_kind
from ...core.errors import ConfigurationError
from ...core.shown import shows

SECOND = timedelta(seconds=1)


class ShownJob:
    def show(self, interval: timedelta = SECOND, *, wait: bool = True) -> None:
        """See `JobClient.show`."""
        check_kind("show: interval", interval, timedelta)
        if interval <= timedelta(0):
            raise ConfigurationError(f"show: interval must be positive, is {interval}")
        shows().watch(self, interval, wait)

    def _repr_html_(self) -> str:
        return shows().job_html(self)
