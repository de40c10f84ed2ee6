"""Traces of jobs on the local host, as OpenTelemetry gets them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strom import Configuration, DiscardSink, JobConfig, MapFunction, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource
from strom.core.config import CheckpointConfig, FixedDelayRestart
from strom.core.errors import ConfigurationError
from strom.core.traces_config import TracesConfig
from strom.engine.hosts import job_traces
from strom.engine.hosts.traces import TraceExporter, open_traces

DELAY_MS = 20
"""Before a restart, counted from the failure: tasks that take longer to stop are not waited for
beyond that."""


class Once(MapFunction):
    """Fails in the first attempt."""

    def open(self, runtime_context: Any) -> None:
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value: int) -> int:
        if value == 300 and self.attempt == 0:
            raise ValueError("boom password=hush " + "x" * 5_000)
        return value


def run(**options: Any) -> Any:
    config = JobConfig(
        checkpoint=CheckpointConfig(interval=timedelta(milliseconds=10)),
        restart=FixedDelayRestart(2, timedelta(milliseconds=DELAY_MS)),
        **options,
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = DataGenSource(lambda start, n: list(range(start, start + n)), 400, rate=2_000)
    env.from_source(source).key_by(lambda n: n % 3).map(Once()).sink_to(DiscardSink())
    return env.execute("traced")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    spans = InMemorySpanExporter()

    def opened(config: Any, job_id: str, name: str) -> TraceExporter:
        return TraceExporter(job_id, name, spans, batched=False)

    monkeypatch.setattr(job_traces, "open_traces", opened)
    return spans


def test_start_checkpoints_and_recovery(exported: InMemorySpanExporter) -> None:
    result = run()
    assert result.restarts == 1
    spans = exported.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans}
    roots = [span for span in spans if span.parent is None]
    checkpoints = [span for span in roots if span.name.startswith("checkpoint ")]
    assert [span.name for span in roots if span not in checkpoints] == ["start", "recovery"]
    assert any(span.status.is_ok for span in checkpoints)
    recovery = next(span for span in roots if span.name == "recovery")
    failure = recovery.attributes["strom.failure"]
    assert "boom password=***" in failure
    assert len(failure) < 2_000
    assert "hush" not in f"{[(span.attributes, span.status.description) for span in spans]}"
    phases = [span for span in spans if span.parent and names[span.parent.span_id] == "recovery"]
    stopped_ms = (phases[0].end_time - phases[0].start_time) / 1e6
    waits = [] if stopped_ms > DELAY_MS - 1 and phases[1].name != "wait" else ["wait"]
    assert [span.name for span in phases] == ["stop", *waits, "load", "deploy", "restore"]
    assert recovery.start_time == phases[0].start_time
    for earlier, later in pairwise(phases):
        assert earlier.end_time == later.start_time
    tasks = {
        span.name for span in spans if span.parent and "checkpoint" in names[span.parent.span_id]
    }
    assert {"publish", "Map -> Sink (1/1)"} <= tasks or len(tasks) > 2
    assert {"alignment", "sync", "async"} <= set(names.values())
    for span in spans:
        assert span.end_time >= span.start_time
        assert span.resource.attributes["strom.job.name"] == "traced"
        assert span.resource.attributes["strom.job.id"] == result.job_id


class Collector(BaseHTTPRequestHandler):
    """Takes what is posted."""

    posted: list[tuple[str, str | None, int]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.posted.append((self.path, self.headers.get("X-Key"), len(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Any]:
    handler = type("Handler", (Collector,), {"posted": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", handler.posted
    server.shutdown()
    thread.join()
    server.server_close()


def test_they_are_posted_to_the_endpoint(collector: Any) -> None:
    endpoint, posted = collector
    configuration = Configuration()
    configuration.set_string("strom.traces.otlp.endpoint", endpoint)
    configuration.set_string("strom.traces.otlp.headers.X-Key", "k")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).sink_to(DiscardSink())
    env.execute()
    assert posted
    assert posted[0][:2] == ("/v1/traces", "k")
    assert posted[0][2] > 100


def test_an_endpoint_that_does_not_answer_costs_the_job_little() -> None:
    result = run(traces=TracesConfig("http://127.0.0.1:9/v1/traces"))
    assert result.checkpoints > 0


def test_what_an_endpoint_is() -> None:
    for wrong in ("localhost:4318", "ftp://x/y", ""):
        with pytest.raises(ConfigurationError, match="must be a URL"):
            TracesConfig(wrong)
    assert "hush" not in repr(TracesConfig("http://h", {"Authorization": "hush"}))
    assert open_traces(TracesConfig(), "j", "job") is None


def test_the_package_that_it_takes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"strom\[traces\]"):
        open_traces(TracesConfig("http://127.0.0.1:1"), "j", "job")


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, strom\n"
        "env = strom.StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).sink_to(strom.DiscardSink())\n"
        "env.execute()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
