"""Metrics reporters as options, under Flink's keys `metrics.reporter.<name>.<parameter>`.

The name is the program's own. What there is of Flink's reporters is Prometheus'; others are named
once in the log, and change nothing.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any, Final

from ...core.errors import ConfigurationError
from ...core.metrics_config import MetricsConfig, Port
from .configuration import Configuration
from .registry import Known, known
from .settings import Settings
from .values import PATHS, STRING, ValueType, read_integer

log = logging.getLogger("strom")

PREFIX: Final = "metrics.reporter."

PROMETHEUS: Final = "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"

_FACTORIES: Final = (PROMETHEUS, "prometheus")
"""What names the reporter there is."""

_KEY: Final = re.compile(r"metrics\.reporter\.([^.]+)\.(.+)")


def _read_port(value: object) -> Port:
    """A port, or `first-last`."""
    first, dash, last = value.partition("-") if isinstance(value, str) else ("", "", "")
    if first and dash:
        return read_integer(first.strip()), read_integer(last.strip())
    return read_integer(value)


def _write_port(value: Port) -> str:
    return f"{value[0]}-{value[1]}" if isinstance(value, tuple) else str(value)


NAMES: Final = known(
    "metrics.reporters",
    PATHS,
    None,
    None,
    "names of the reporters that are used, with commas between. Not set: all that have a factory",
)

FACTORY: Final = known(
    f"{PREFIX}<name>.factory.class",
    STRING,
    None,
    None,
    f"`{PROMETHEUS}` or `prometheus`; others have no effect",
)

PORT: Final = known(
    f"{PREFIX}<name>.port",
    ValueType("Port", _read_port, _write_port),
    9249,
    None,
    "of the endpoint; of a range as `9250-9260` the first that is free; 0: any free one",
)

HOST: Final = known(
    f"{PREFIX}<name>.host",
    STRING,
    "127.0.0.1",
    None,
    "address that the endpoint is bound to; others than loopback need a token",
)

TOKEN: Final = known(
    f"{PREFIX}<name>.token",
    STRING,
    None,
    None,
    "what a reader has to send, as `Authorization: Bearer <token>`",
)

REPORTER_OPTIONS: Final = (NAMES, FACTORY, PORT, HOST, TOKEN)

_PARAMETERS: Final = {
    one.option.key.partition("<name>.")[2] for one in (FACTORY, PORT, HOST, TOKEN)
}

_told: set[str] = set()
"""Reporters that the log has named."""


def is_of_reporters(key: str) -> bool:
    """Whether the key says something of reporters that is understood here."""
    match = _KEY.fullmatch(key)
    return key == NAMES.option.key or (match is not None and match[2] in _PARAMETERS)


def apply_reporters(settings: Settings) -> None:
    """ConfigurationError if a reporter has no factory, or two would be Prometheus' endpoint."""
    given = settings.together
    chosen = given.get(NAMES.option)
    prometheus = [name for name in _names(given, chosen) if _is_prometheus(given, name)]
    if len(prometheus) > 1:
        raise given.error(
            _key(FACTORY, prometheus[1]), f"a job has one endpoint, which is '{prometheus[0]}'"
        )
    if prometheus:
        settings.change(metrics=_metrics(given, prometheus[0], settings.base.metrics))
    elif chosen is not None:
        settings.change(metrics=replace(settings.base.metrics, prometheus_port=None))


def _names(given: Configuration, chosen: list[str] | None) -> list[str]:
    if chosen is not None:
        return [name for name in chosen if name]
    matches = (_KEY.fullmatch(key) for key in sorted(given.key_set()))
    return list(dict.fromkeys(match[1] for match in matches if match is not None))


def _is_prometheus(given: Configuration, name: str) -> bool:
    factory = given.get_string(_key(FACTORY, name), "")
    if not factory:
        of_name = [key for key in sorted(given.key_set()) if key.startswith(f"{PREFIX}{name}.")]
        key = of_name[0] if of_name else NAMES.option.key
        raise given.error(key, f"reporter '{name}' needs '{_key(FACTORY, name)}'")
    if factory not in _FACTORIES and factory not in _told:
        _told.add(factory)
        log.warning("reporter '%s' (%s) has no effect here: there is Prometheus'", name, factory)
    return factory in _FACTORIES


def _metrics(given: Configuration, name: str, before: MetricsConfig) -> MetricsConfig:
    changes: dict[str, Any] = {
        field: given.read(known.option.type, key, None)
        for field, known in (("prometheus_host", HOST), ("prometheus_token", TOKEN))
        if (key := _key(known, name)) in given
    }
    key = _key(PORT, name)
    port = given.read(PORT.option.type, key, PORT.option.default)
    try:
        return replace(before, prometheus_port=port, **changes)
    except ConfigurationError as error:
        raise given.error(_key(FACTORY, name), str(error)) from None


def _key(known: Known, name: str) -> str:
    return known.option.key.replace("<name>", name)
