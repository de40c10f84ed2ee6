"""The dashboard that a program has of the job that it runs."""

from __future__ import annotations

import sys

from ...core.errors import StromError
from .host import JobClient, JobPages, open_pages


class Dashboard:
    """Of one environment: at most one is open, of the job before."""

    def __init__(self) -> None:
        self._pages: JobPages | None = None

    def show(self, client: JobClient, wanted: bool) -> None:
        """Open the job's, if it is wanted, and say where it is, or why there is none: the job goes
        on without. The one before is closed."""
        if not wanted:
            return
        self.close()
        try:
            self._pages = open_pages(client)
        except StromError as error:
            print(f"strom: no dashboard: {error}", file=sys.stderr)
            return
        print(f"strom: dashboard of job {client.get_job_id()}: {self._pages.url}", flush=True)

    def close(self) -> None:
        """Idempotent."""
        opened, self._pages = self._pages, None
        if opened is not None:
            opened.close()
