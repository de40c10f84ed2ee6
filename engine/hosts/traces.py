"""A job's spans on their way to OpenTelemetry. Nothing of that is imported without an endpoint."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any, Final

from ...core.errors import ConfigurationError
from ...core.failure_text import described
from ...core.redaction import redacted
from ...core.traces_config import TracesConfig
from ..coordinator.traces import Span

log = logging.getLogger("strom")

MOST_TEXT: Final = 1_000
"""Characters of what a span says of a failure."""

SEND_S: Final = 5
"""How long one post may take."""

LEAVE_S: Final = 2.0
"""How long a job that is over waits for its last spans; what is left then goes on beside it."""


class TraceExporter:
    """Of one job. `export` returns at once: a thread of OpenTelemetry's sends, and drops what
    cannot be sent."""

    def __init__(self, job_id: str, job_name: str, exporter: Any, batched: bool = True) -> None:
        """`exporter`: one of OpenTelemetry's for spans; `batched`: by a thread, else at once."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        about = {"service.name": "strom", "strom.job.id": job_id, "strom.job.name": job_name}
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        kind = BatchSpanProcessor if batched else SimpleSpanProcessor
        self._provider.add_span_processor(kind(exporter))
        self._tracer = self._provider.get_tracer("strom")

    def export(self, spans: Iterable[Span]) -> None:
        """Of spans that have ended, and all within them."""
        for span in spans:
            try:
                self._send(span, None)
            except Exception as error:  # the job goes on without
                log.warning("a span is lost: %s", described(error))

    def close(self) -> None:
        """Send what is left."""
        leaving = threading.Thread(target=self._provider.shutdown, name="strom-traces", daemon=True)
        leaving.start()
        leaving.join(LEAVE_S)

    def _send(self, span: Span, parent: Any) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        context = Context() if parent is None else set_span_in_context(parent, Context())
        told = {f"strom.{name}": _shown(value) for name, value in span.attributes.items()}
        made = self._tracer.start_span(
            span.name, context, attributes=told, start_time=_nanos(span.start_ms)
        )
        for child in span.children:
            self._send(child, made)
        if span.error is not None:
            made.set_status(Status(StatusCode.ERROR, _shown(span.error)))
        end_ms = span.start_ms if span.end_ms is None else span.end_ms
        made.end(_nanos(end_ms))


def open_traces(config: TracesConfig, job_id: str, job_name: str) -> TraceExporter | None:
    """None: there are to be none. ConfigurationError without the packages that it takes."""
    if config.otlp_endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigurationError(
            "strom.traces.otlp.endpoint takes OpenTelemetry's packages, of which one is not "
            f"installed where the job's coordinator runs ({error}): pip install 'strom[traces]'"
        ) from None
    exporter = OTLPSpanExporter(config.otlp_endpoint, headers=config.otlp_headers, timeout=SEND_S)
    return TraceExporter(job_id, job_name, exporter)


def _shown(value: Any) -> Any:
    """Failures are texts of users' code."""
    return redacted(value, MOST_TEXT) if isinstance(value, str) else value


def _nanos(ms: float) -> int:
    return int(ms * 1e6)
