"""The Prometheus endpoint, and what is handed to Ray's metrics."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from strom import (
    ConfigurationError,
    DiscardSink,
    JobConfig,
    MapFunction,
    MetricsConfig,
    StreamExecutionEnvironment,
)
from strom.connectors.datagen import DataGenSource
from strom.engine.hosts.metric_samples import Sample
from strom.engine.hosts.ray_metrics import RayReporter


class Counting(MapFunction):
    def open(self, runtime_context):
        group = runtime_context.get_metrics_group().add_group("my shop").add_group("city", "berlin")
        self.seen = group.counter("seen-so-far")
        self.sizes = group.distribution("sizes")
        group.gauge("mood", lambda: "good")  # a text is no sample

    def map(self, value):
        self.seen.inc()
        self.sizes.update(2)
        return value


def started(metrics: MetricsConfig, name: str = "metered") -> Any:
    config = JobConfig(parallelism=2, metrics_interval=timedelta(milliseconds=5), metrics=metrics)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    env.from_source(source).map(Counting()).name("Shop").sink_to(DiscardSink())
    return env.execute_async(name)


def read(address: str, **headers: str) -> str:
    request = urllib.request.Request(f"http://{address}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def samples(text: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_off_by_default() -> None:
    client = started(MetricsConfig())
    assert client.prometheus_address is None
    client.cancel()
    assert not [t for t in threading.enumerate() if t.name == "strom-prometheus"]


def test_what_prometheus_reads() -> None:
    client = started(MetricsConfig(prometheus_port=0))
    try:
        address = client.prometheus_address
        assert address.startswith("127.0.0.1:")
        name, deadline = "strom_operator_my_shop_city_seen_so_far", time.monotonic() + 10.0
        sizes = "strom_operator_my_shop_city_sizes"
        while len((found := samples(read(address))).get(sizes, ())) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        by_subtask = {sample.labels["subtask_index"]: sample for sample in found[name]}
        assert set(by_subtask) == {"0", "1"}
        labels = by_subtask["0"].labels
        assert labels["city"] == "berlin"
        assert (labels["job_id"], labels["job_name"]) == (client.get_job_id(), "metered")
        assert labels["operator_name"] == "Shop"
        quantiles = {s.labels["quantile"] for s in found[sizes]}
        assert quantiles == {"0.5", "0.75", "0.95", "0.99"}
        assert found[f"{sizes}_mean"][0].value == 2
        assert found["strom_job_numRestarts"][0].value == 0
        assert len(found["strom_task_busyTimeMsPerSecond"]) == 2
        assert not [name for name in found if "mood" in name]
    finally:
        client.cancel()
    assert client.prometheus_address is None
    with pytest.raises(urllib.error.URLError):
        read(address)


def test_a_token_is_asked_for() -> None:
    client = started(MetricsConfig(prometheus_port=0, prometheus_token="secret"))
    try:
        address = client.prometheus_address
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}):
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                read(address, **headers)
            assert b"strom_" not in refused.value.read()
        assert "strom_job_uptime" in read(address, Authorization="Bearer secret")
        assert "secret" not in repr(MetricsConfig(prometheus_token="secret"))
    finally:
        client.cancel()


def test_a_port_that_is_taken_fails_the_start_and_leaves_nothing() -> None:
    client = started(MetricsConfig(prometheus_port=0))
    try:
        port = int(client.prometheus_address.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=f"cannot be bound to 127.0.0.1:{port}"):
            started(MetricsConfig(prometheus_port=port), "second")
        deadline = time.monotonic() + 10.0
        while left := [t for t in threading.enumerate() if "second" in t.name]:
            assert time.monotonic() < deadline, left
            time.sleep(0.01)
    finally:
        client.cancel()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "somewhere.example"])
def test_a_bind_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="set prometheus_token"):
        MetricsConfig(prometheus_host=host)
    assert MetricsConfig(prometheus_host=host, prometheus_token="t").prometheus_host == host


@pytest.mark.parametrize(
    "options",
    [
        {"prometheus_port": -1},
        {"prometheus_port": "80"},
        {"prometheus_token": ""},
        {"prometheus_host": None},
        {"ray_interval": timedelta(0)},
        {"ray_interval": 5},
    ],
)
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        MetricsConfig(**options)


class FakeGauge:
    def __init__(self, name: str, keys: tuple[str, ...]) -> None:
        self.name, self.keys = name, keys
        self.values: dict[Any, float] = {}

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert tuple(tags) == self.keys
        self.values[tuple(tags.values())] = value


def test_ray_gets_a_gauge_per_name_and_what_has_other_labels_another_name() -> None:
    given = [
        Sample("n", (("subtask_index", "0"),), 1.0),
        Sample("n", (("subtask_index", "1"),), 2.0),
        Sample("n", (("city", "berlin"), ("subtask_index", "0")), 3.0),
    ]
    gauges: list[FakeGauge] = []

    def make(name: str, keys: tuple[str, ...]) -> FakeGauge:
        gauges.append(FakeGauge(name, keys))
        return gauges[-1]

    reporter = RayReporter(lambda: given, timedelta(seconds=1), make)
    reporter.report()
    given[0] = Sample("n", (("subtask_index", "0"),), 9.0)
    reporter.report()
    assert {gauge.name: gauge.values for gauge in gauges} == {
        "strom_n": {("0",): 9.0, ("1",): 2.0},
        "strom_n_by_city_subtask_index": {("berlin", "0"): 3.0},
    }


def test_a_reporter_that_fails_says_so_once_and_reports_again_later(caplog) -> None:
    broken, reported = [True], threading.Event()

    def given() -> list[Sample]:
        if broken:
            raise ValueError("not now")
        reported.set()
        return []

    reporter = RayReporter(given, timedelta(milliseconds=1))
    reporter.start()
    deadline = time.monotonic() + 10.0
    while not caplog.records:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    broken.clear()
    assert reported.wait(10.0)
    reporter.close()
    assert [r.getMessage() for r in caplog.records] == [
        "metrics cannot be handed to Ray: ValueError: not now"
    ]
