"""The board asks for what jobs export, and the document has a row for each of these."""

from __future__ import annotations

import json
import re
import runpy
from datetime import timedelta
from functools import cache
from pathlib import Path

import strom
from strom import DiscardSink, JobConfig, MetricsConfig, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource
from strom.core.config import CheckpointConfig
from strom.core.constants import DEAD_LETTERS_COUNT
from strom.engine.hosts import local
from strom.engine.hosts.flink_names import operator_figures
from strom.operators.tables.over import LATE_DROPPED

ROOT = Path(strom.__file__).parent
BOARD = ROOT / "deploy" / "grafana" / "strom.json"


@cache
def exported() -> frozenset[str]:
    """The names of what a job tells by itself, whatever its functions count."""
    config = JobConfig(
        metrics_interval=timedelta(milliseconds=5),
        metrics=MetricsConfig(latency_interval=timedelta(milliseconds=5)),
        checkpoint=CheckpointConfig(interval=timedelta(milliseconds=20)),
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = DataGenSource(lambda start, n: list(range(start, start + n)), 300, rate=2_000)
    stamped = env.from_source(source).assign_timestamps_and_watermarks(
        strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    )
    stamped.key_by(lambda n: n % 3).map(lambda n: n).sink_to(DiscardSink())
    client = env.execute_async()
    assert isinstance(client, local.LocalJob)
    client.get_job_execution_result()
    some = {"gauges": {"pending_records": 1.0}, "watermark_lag": 1}  # gone when all is read
    keys = ("records_in", "records_out", "in_rate", "out_rate", "input_watermark", "watermark")
    of_sources = operator_figures(dict.fromkeys(keys, 0) | some)
    found = {sample.name for sample in client._driver.samples()}
    # Counted where there is something to count, or told while there is some.
    seldom = (LATE_DROPPED, DEAD_LETTERS_COUNT, "retriedCommittables", "failedCommittables")
    seldom = (*seldom, "state_entries_operator", "state_bytes_operator")
    return frozenset(found | {f"operator_{name}" for name in (*of_sources, *seldom)})


def test_the_board_is_as_its_script_makes_it() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_board.py"))["text"]()
    assert BOARD.read_text() == made, "run: .venv/bin/python scripts/make_board.py"


def test_each_panel_asks_for_metrics_that_there_are() -> None:
    panels = [p for p in json.loads(BOARD.read_text())["panels"] if p["type"] != "row"]
    assert len(panels) > 20
    for panel in panels:
        for target in panel["targets"]:
            names = set(re.findall(r"strom_(\w+)", target["expr"]))
            assert names, panel["title"]
            assert names <= exported(), panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")")
            assert target["expr"].count("{") == target["expr"].count("}")


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(BOARD.read_text())["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        mine = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not mine & taken, panel["title"]
        taken |= mine


def test_the_document_has_a_row_for_each_metric() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text().partition("### Names")[2]
    rows = [line for line in text.partition("\n### ")[0].splitlines() if line.startswith("| `")]
    first = " ".join(row.split("|")[1] for row in rows)
    named = (re.sub(r"^(<\w+>\.)*|^\.|\.<.*", "", name) for name in re.findall(r"`(.+?)`", first))
    documented = {name.replace(".", "_") for name in named if name and "<" not in name}
    parts = re.compile(r"_(count|sum|min|max|mean)$")
    names = {parts.sub("", name.partition("_")[2]) for name in exported()}
    assert names - documented == set(), "metrics without a row"
    assert documented - names - {"numRetractionsOfForgottenSkipped"} == set(), "rows of no metric"
