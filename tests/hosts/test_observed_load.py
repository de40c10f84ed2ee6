"""What the autoscaler sees of a job that runs: its shape, its figures, and what `strom autoscale`
says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import strom
from chaos_kit import until
from strom import DiscardSink, JobConfig, StreamExecutionEnvironment
from strom.cli.main import app
from strom.connectors.datagen import DataGenSource
from strom.core.autoscaler_config import AutoscalerConfig
from strom.core.ids import VertexId
from strom.engine.hosts.observed_load import (
    sample_now,
    sample_of,
    shape_as_planned,
    shape_of,
)
from typer.testing import CliRunner


def numbers(start: int, count: int) -> list[dict[str, int]]:
    """Half of the records have one key."""
    return [{"k": n // 2 if n % 2 else -1, "v": n} for n in range(start, start + count)]


@pytest.fixture
def client() -> Iterator[Any]:
    config = JobConfig(
        parallelism=2,
        metrics_interval=timedelta(milliseconds=50),
        autoscaler=AutoscalerConfig(excluded=("sums",)),
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    stream = env.from_source(DataGenSource(numbers, rate=20_000, block=500), source_name="numbers")
    sums = stream.key_by("k").sum("v").uid("sums")
    sums.set_parallelism(2).sink_to(DiscardSink())
    stream.broadcast().map(lambda row: row).name("copies").global_().sink_to(DiscardSink())
    client = env.execute_async("observed")
    yield client
    client.cancel()


def job_of(client: Any) -> Any:
    return client._driver.graph.job


def test_a_coordinator_sees_what_others_do(client: Any) -> None:
    driver = client._driver

    def same() -> bool:
        """Of one picture, and with figures of all vertices."""
        state, job = driver._shown
        view = driver.view()
        if driver._shown[0] is not state:
            return False
        sample = sample_now(state, job, view["now_ms"])
        assert sample == sample_of(view)
        return len(sample.vertices) == len(job.vertices)

    until(same, "figures of all vertices")


def test_shape_figures_and_what_is_said(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def both() -> bool:
        sample = sample_of(client.view())
        return len(sample.vertices) == len(shape_of(client.view()).vertices) and all(
            totals.records for totals in sample.vertices.values()
        )

    until(both, "figures of all vertices")
    until(lambda: client.view().get("keys"), "keys")
    view = client.view()
    shape, sample = shape_of(view), sample_of(view)
    by_name = {vertex.name: vertex for vertex in shape.vertices}
    source, keyed, copies, last = by_name.values()
    assert keyed.keyed
    assert "sums" in keyed.labels
    assert last.fixed == "all of its records go to one subtask"
    assert [edge.ship for edge in shape.edges] == ["spread", "broadcast", "spread"]
    totals = sample.vertices
    assert all(one.parallelism == 2 for one in totals.values())
    assert totals[keyed.id].loads is not None
    assert 0 < (totals[keyed.id].busiest_share or 0) <= 1
    assert sample.edges[1] == totals[copies.id].records // 2
    assert totals[source.id].records > 0
    assert shape_as_planned(job_of(client)) == shape
    keys = {one["vertex"]: one for one in view["keys"]}[keyed.id]
    assert keys["hot"][0]["key"] == "-1"
    assert keys["hot"][0]["most"] > 0.3
    assert keys["skew"] > 1.2
    assert AutoscalerConfig.of_plain(view["autoscaler"]) == AutoscalerConfig(excluded=("sums",))
    assert json.loads(json.dumps(view, allow_nan=False)) == view

    monkeypatch.setattr(strom, "attach", lambda job, address: client)
    done = CliRunner().invoke(app, ["autoscale", "x", "--window", "1"])
    assert done.exit_code == 0, done.output
    said = done.stdout.splitlines()
    assert len(said) == len(shape.vertices)
    assert f"{keyed.name}: stays 2: it is excluded (job.autoscaler.vertex.exclude.ids)" in said

    def source_works() -> bool:
        """On a machine that is busy a second may pass without a record."""
        done = CliRunner().invoke(app, ["autoscale", "x", "--window", "1", "--json"])
        (first, *_) = json.loads(done.stdout)["vertices"]
        assert (first["id"], first["parallelism"]) == (VertexId(source.id), 2)
        return bool(first["records_per_s"] > 0)

    until(source_works, "records within a second")
