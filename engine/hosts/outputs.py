"""The sinks of a job, as its coordinator takes them over and releases them. Used by the sources'
worker only, which does so before and behind all that the job does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from ...api.connectors.base import OutputClaim, Sink
from ...core.errors import OutputRefusedError
from ...core.failure_text import text_of
from ...core.place import Place
from ..graph.model import JobGraph

log = logging.getLogger("strom")


class Outputs:
    """From `take` to `release`."""

    def __init__(self, job: JobGraph, job_id: str, token: str, home: str | None = None) -> None:
        """`token`: no other coordinator's. `home`: as of `OutputClaim`."""
        self._job_id = job_id
        self._job_name = job.name
        self._token = token
        self._home = home
        self._sinks: list[tuple[str, str, Sink]] = [
            (operator.name, str(operator.operator_id), sink)
            for vertex in job.vertices
            for operator in vertex.operators
            if isinstance(sink := getattr(operator.spec, "sink", None), Sink)
        ]
        self._claims: list[tuple[Sink, OutputClaim]] = []
        """What was taken over."""
        self._origin: tuple[str, int] | None = None
        self.tokens: dict[str, str] = {}
        """What tasks show, by operator; of sinks that could be taken over."""

    def take(
        self,
        origin: tuple[str, int] | None,
        epochs: tuple[int, int] = (0, 0),
        shown: Mapping[str, frozenset[str]] = MappingProxyType({}),
    ) -> None:
        """Before each attempt; what was taken over is not again, unless the job starts from
        something else now. `origin`, in that order `epochs`, and by operator `shown`: as of
        `OutputClaim`. OutputRefusedError."""
        if origin is not None and origin != self._origin:
            self._origin, self.tokens = origin, {}
        for name, operator_id, sink in self._sinks:
            if operator_id in self.tokens:
                continue
            claim = OutputClaim(
                self._job_id,
                self._job_name,
                name,
                operator_id,
                self._token,
                str(Place.here()),
                origin,
                *epochs,
                home=self._home,
                shown=shown.get(operator_id, frozenset()),
            )
            try:
                for news in sink.take_over(claim):
                    log.warning("job %s: %s", self._job_id, news)
                token = sink.writers_token(claim)
            except OutputRefusedError as error:
                raise OutputRefusedError(f"operator '{name}': {error}") from error
            except Exception as error:
                log.warning(
                    "job %s: the coordinator cannot take over what '%s' writes to, so other jobs "
                    "that write there are not kept away: %s",
                    self._job_id,
                    name,
                    text_of(error),
                )
            else:
                self._claims = [c for c in self._claims if c[1].operator_id != operator_id]
                self._claims.append((sink, claim))
                self.tokens = {**self.tokens, operator_id: token}

    def release(self, status: str) -> None:
        """The job is over. What cannot be said to a sink is only worth a log line."""
        claims, self._claims = self._claims, []
        for sink, claim in claims:
            try:
                sink.release(claim, status)
            except Exception as error:
                log.warning(
                    "job %s: its end could not be told to '%s': %s",
                    self._job_id,
                    claim.operator,
                    text_of(error),
                )
