"""Write the Grafana board of a job: `deploy/grafana/strom.json`. With `--check`: whether it is so.

    .venv/bin/python scripts/make_board.py

Each panel asks Prometheus for metrics under the names that a job's endpoint has them by
(docs/metrics.md); `tests/deploy/test_grafana.py` holds them to what is exported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BOARD = Path(__file__).parent.parent / "deploy" / "grafana" / "strom.json"

SOURCE = {"type": "prometheus", "uid": "${source}"}
OF_JOB = 'job_name=~"$job",job_id=~"$id"'

Query = tuple[str, str]
"""An expression, in which `{}` stands for the labels of the chosen job, and its legend."""


def query(expression: str, legend: str) -> Query:
    return expression.replace("{}", "{" + OF_JOB + "}"), legend


def by_operator(metric: str, how: str = "sum") -> Query:
    return query(f"{how} by (operator_name) (strom_operator_{metric}{{}})", "{{operator_name}}")


def by_task(metric: str, how: str = "avg") -> Query:
    return query(f"{how} by (task_name) (strom_task_{metric}{{}})", "{{task_name}}")


def of_job(metric: str) -> Query:
    return query(f"strom_job_{metric}{{}}", "{{job_name}}")


LATENCY = (
    "max by (source_name, operator_name) (strom_operator_latency{" + OF_JOB + ',quantile="0.99"})',
    "{{source_name}} -> {{operator_name}}",
)

ROWS: list[tuple[str, list[tuple[str, str, str, list[Query]]]]] = [
    (
        "Job",
        [
            ("stat", "Tasks that run", "short", [of_job("numRunningTasks")]),
            ("stat", "Restarts", "short", [of_job("numRestarts")]),
            ("stat", "Runs for", "ms", [of_job("uptime")]),
            ("stat", "Checkpoints completed", "short", [of_job("numberOfCompletedCheckpoints")]),
            ("stat", "Checkpoints failed", "short", [of_job("numberOfFailedCheckpoints")]),
        ],
    ),
    (
        "Throughput",
        [
            ("timeseries", "Records in", "ops", [by_operator("numRecordsInPerSecond")]),
            ("timeseries", "Records out", "ops", [by_operator("numRecordsOutPerSecond")]),
            ("timeseries", "Not read yet", "short", [by_operator("pendingRecords")]),
            ("timeseries", "Dropped as late", "short", [by_operator("numLateRecordsDropped")]),
        ],
    ),
    (
        "Tasks",
        [
            ("timeseries", "Busy, ms per s", "ms", [by_task("busyTimeMsPerSecond")]),
            ("timeseries", "Held up, ms per s", "ms", [by_task("backPressuredTimeMsPerSecond")]),
            ("timeseries", "Idle, ms per s", "ms", [by_task("idleTimeMsPerSecond")]),
            ("timeseries", "Buffers in use", "percentunit", [by_task("poolUsage", "max")]),
            ("timeseries", "Bytes in flight", "bytes", [by_task("bytesInFlight", "sum")]),
            (
                "timeseries",
                "CPUs",
                "short",
                [
                    query(
                        "sum by (task_name) (rate(strom_task_processCpuTime{}[1m])) / 1000",
                        "{{task_name}}",
                    )
                ],
            ),
        ],
    ),
    (
        "Time",
        [
            (
                "timeseries",
                "Event time behind the clock",
                "ms",
                [by_operator("watermarkLag", "max")],
            ),
            ("timeseries", "Latency, 99 of 100 markers", "ms", [LATENCY]),
        ],
    ),
    (
        "Checkpoints and state",
        [
            ("timeseries", "Last checkpoint took", "ms", [of_job("lastCheckpointDuration")]),
            ("timeseries", "Last checkpoint wrote", "bytes", [of_job("lastCheckpointSize")]),
            ("timeseries", "State", "bytes", [by_operator("stateSize")]),
            ("timeseries", "Alignment", "ns", [by_task("checkpointAlignmentTime", "max")]),
            ("timeseries", "Start delay", "ns", [by_task("checkpointStartDelayNanos", "max")]),
            ("timeseries", "Frozen in", "ms", [by_task("checkpointSyncDuration", "max")]),
            ("timeseries", "Written in", "ms", [by_task("checkpointAsyncDuration", "max")]),
            ("timeseries", "Most memory", "bytes", [by_task("processPeakMemory", "max")]),
        ],
    ),
]


def panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        made.append(_row(len(made) + 1, title, top))
        top += 1
        width, height = (24 // len(row), 4) if row[0][0] == "stat" else (12, 8)
        for place, (kind, name, unit, queries) in enumerate(row):
            across = 24 // width
            grid = {"x": place % across * width, "y": top + place // across * height}
            grid |= {"w": width, "h": height}
            made.append(_panel(len(made) + 1, kind, name, unit, queries, grid))
        top += -(-len(row) // (24 // width)) * height
    return made


def board() -> dict[str, Any]:
    return {
        "title": "strom job",
        "uid": "strom-job",
        "tags": ["strom"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                _variable("job", "Job", "label_values(strom_job_uptime, job_name)"),
                _variable("id", "Id", 'label_values(strom_job_uptime{job_name=~"$job"}, job_id)'),
            ]
        },
        "panels": panels(),
    }


def _variable(name: str, label: str, asked: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": asked, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    grid = {"x": 0, "y": top, "w": 24, "h": 1}
    return {"id": number, "type": "row", "title": title, "gridPos": grid, "panels": []}


def _panel(
    number: int, kind: str, title: str, unit: str, queries: list[Query], grid: dict[str, int]
) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "gridPos": grid,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": SOURCE,
                "expr": asked,
                "legendFormat": legend,
            }
            for n, (asked, legend) in enumerate(queries)
        ],
    }


def text() -> str:
    return json.dumps(board(), indent=2) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(BOARD.read_text() != text())
    BOARD.write_text(text())
