"""A job's metrics over HTTP, for Prometheus. Nothing is worked out but when it asks.

All are gauges, as with Flink's reporter: its counters may go down, and all begin anew when a job
restarts.
"""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ...core.errors import ConfigurationError
from ...core.metrics_config import MetricsConfig
from .metric_samples import PREFIX, Sample

SILENCE_S = 10.0
"""A reader that says nothing for so long is hung up on."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without asking who the host is: that may take long, and nobody needs it."""
        super(WSGIServer, self).server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody wants a line per request."""


class PrometheusEndpoint:
    """Serves until `close`."""

    def __init__(self, config: MetricsConfig, samples: Callable[[], Iterable[Sample]]) -> None:
        from prometheus_client import CollectorRegistry, make_wsgi_app

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(samples))
        app = make_wsgi_app(registry)
        if config.prometheus_token is not None:
            app = _guarded(app, config.prometheus_token)
        host = config.prometheus_host
        self._server = _bound(host, config.prometheus_ports(), app)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="strom-prometheus",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _bound(host: str, ports: Sequence[int], app: Any) -> WSGIServer:
    """To the first of the ports that is free."""
    server = _Server6 if ":" in host else _Server
    refused: OSError | None = None
    for port in ports:
        try:
            return make_server(host, port, app, server, _Handler)
        except OSError as error:
            refused = error
    several = f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else f"{ports[0]}"
    raise ConfigurationError(
        f"the Prometheus endpoint cannot be bound to {host}:{several} ({refused}): give another "
        "port; 0 takes any free one"
    )


class _Collector:
    """What the registry asks."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Any]:
        from prometheus_client.metrics_core import Metric

        families: dict[str, Metric] = {}
        for sample in self._samples():
            name = PREFIX + sample.name
            family = families.get(name)
            if family is None:
                family = families[name] = Metric(name, f"strom: {sample.name}", "gauge")
            family.add_sample(name, dict(sample.labels), sample.value)
        return families.values()


def _guarded(app: Callable[..., Any], token: str) -> Callable[..., Any]:
    """The app for those who know the token."""
    expected = f"Bearer {token}".encode()

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        given = str(environ.get("HTTP_AUTHORIZATION", "")).encode("latin-1", "replace")
        if hmac.compare_digest(given, expected):
            return app(environ, start_response)
        start_response(
            "401 Unauthorized",
            [("Content-Type", "text/plain"), ("WWW-Authenticate", 'Bearer realm="metrics"')],
        )
        return [b"send the token: Authorization: Bearer <token>\n"]

    return guarded
