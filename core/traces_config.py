"""Where a job's traces go."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .checks import check_kind
from .errors import ConfigurationError


@dataclass(frozen=True)
class TracesConfig:
    """otlp_endpoint: the URL that OpenTelemetry's spans are posted to, as in
        `http://127.0.0.1:4318/v1/traces`; None: there are no traces.
    otlp_headers: what is sent with them, such as credentials."""

    otlp_endpoint: str | None = None
    otlp_headers: dict[str, str] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        check_kind("otlp_endpoint", self.otlp_endpoint, str, type(None))
        check_kind("otlp_headers", self.otlp_headers, dict)
        if self.otlp_endpoint is not None:
            url = urlsplit(self.otlp_endpoint)
            if url.scheme not in ("http", "https") or not url.hostname:
                raise ConfigurationError(
                    "otlp_endpoint must be a URL such as http://127.0.0.1:4318/v1/traces, is "
                    f"'{self.otlp_endpoint}'"
                )
