"""Metrics reporters under Flink's keys."""

from __future__ import annotations

import logging
import socket
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from strom import (
    Configuration,
    ConfigurationError,
    DiscardSink,
    JobConfig,
    MetricsConfig,
    StreamExecutionEnvironment,
)
from strom.api.configuration import reporters
from strom.connectors.datagen import DataGenSource

FACTORY = "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"

make = StreamExecutionEnvironment.get_execution_environment


def metrics(values: dict[str, Any]) -> MetricsConfig:
    keys = {f"metrics.{key}": value for key, value in values.items()}
    return make(Configuration.from_dict(keys)).get_job_config().metrics


def test_flinks_prometheus_reporter() -> None:
    prom = {"reporter.prom.factory.class": FACTORY}
    assert metrics(prom) == MetricsConfig(prometheus_port=9249)
    assert metrics({**prom, "reporter.prom.port": "9999"}).prometheus_port == 9999
    assert metrics({**prom, "reporter.prom.port": "9250-9260"}).prometheus_port == (9250, 9260)
    assert metrics({**prom, "reporters": "prom"}).prometheus_port == 9249
    assert metrics({**prom, "reporters": ""}).prometheus_port is None
    host = {"reporter.prom.host": "127.0.0.1"}
    assert metrics({**prom, **host}) == metrics({**prom, "reporter.prom.port": "9249"})
    other = {"reporter.prom.host": "0.0.0.0", "reporter.prom.token": "t", "reporter.prom.port": 0}
    assert metrics({**prom, **other}) == MetricsConfig(0, "0.0.0.0", "t")


def test_the_port_comes_from_elsewhere_than_the_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(
        f"metrics:\n  reporters: prom\n  reporter.prom:\n    factory.class: {FACTORY}\n"
        "    port: 9250\n"
    )
    monkeypatch.setenv("STROM_CONF_DIR", str(tmp_path))
    assert make().get_job_config().metrics.prometheus_port == 9250
    monkeypatch.setenv("STROM_CONF__METRICS__REPORTER__PROM__PORT", "9251")
    env = make()
    assert env.get_job_config().metrics.prometheus_port == 9251
    env.configure(Configuration.from_dict({"metrics.reporter.prom.port": "9252"}))
    assert env.get_job_config().metrics.prometheus_port == 9252


def test_options_over_a_job_config() -> None:
    given = MetricsConfig(prometheus_port=1, prometheus_token="t", ray_interval=None)
    env = make(JobConfig(metrics=given))
    env.configure(Configuration.from_dict({"metrics.reporter.p.factory.class": "prometheus"}))
    expected = MetricsConfig(prometheus_port=9249, prometheus_token="t", ray_interval=None)
    assert env.get_job_config().metrics == expected


def test_rays_metrics() -> None:
    def interval(text: str) -> timedelta | None:
        key = "strom.metrics.ray-interval"
        return make(Configuration.from_dict({key: text})).get_job_config().metrics.ray_interval

    assert interval("9 s") == timedelta(seconds=9)
    assert interval("0") is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"reporters": "prom"}, r"'prom' needs 'metrics\.reporter\.prom\.factory\.class'"),
        ({"reporter.prom.port": "1"}, r"reporter\.prom\.port': reporter 'prom' needs 'metrics"),
        (
            {f"reporter.{name}.factory.class": FACTORY for name in ("a", "b")},
            "'metrics.reporter.b.factory.class': a job has one endpoint, which is 'a'",
        ),
        (
            {"reporter.p.factory.class": FACTORY, "reporter.p.host": "0.0.0.0"},
            "set prometheus_token",
        ),
        ({"reporter.p.factory.class": FACTORY, "reporter.p.port": "x"}, r"p\.port': 'x' is no int"),
        (
            {"reporter.p.factory.class": FACTORY, "reporter.p.port": "5-4"},
            "a first and a last port",
        ),
        ({"reporterz": "prom"}, "did you mean 'metrics.reporters'"),
    ],
)
def test_what_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        metrics(values)


def test_other_reporters_are_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporters, "_told", set())
    jmx = {"reporter.jmx.factory.class": "org.apache.flink.metrics.jmx.JMXReporterFactory"}
    with caplog.at_level(logging.WARNING, logger="strom"):
        assert metrics(jmx) == metrics(jmx) == MetricsConfig()
    (record,) = caplog.records
    assert "reporter 'jmx' (org.apache.flink.metrics.jmx.JMX" in record.getMessage()


def test_secrets_are_not_shown() -> None:
    configuration = Configuration.from_dict({"metrics.reporter.p.token": "abc", "my.name": "def"})
    assert "abc" not in f"{configuration} {configuration!r}"
    assert "def" in str(configuration)
    assert configuration.to_dict()["metrics.reporter.p.token"] == "abc"


def test_a_job_serves_what_the_configuration_asks_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        values = {
            "metrics.reporter.prom.factory.class": FACTORY,
            "metrics.reporter.prom.port": f"{first}-{min(first + 50, 65535)}",
        }
        env = make(Configuration.from_dict(values))
        source = DataGenSource(lambda start, n: list(range(start, start + n)))
        env.from_source(source).sink_to(DiscardSink())
        client = env.execute_async("served")
        try:
            port = int(client.prometheus_address.rpartition(":")[2])
            assert first < port <= first + 50
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                assert "strom_job_uptime" in answer.read().decode()
        finally:
            client.cancel()
