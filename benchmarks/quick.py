"""A quick set for a report: small inputs, one run each. Enough to see shapes, not to quote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from .latency import measure_latency
from .measure import Setting, measure
from .nexmark.registry import NEXMARK

EVENTS = 1_000_000
RATES = (1_000, 10_000, 50_000)
SECONDS = 3.0
TASKS = (1, 2)
CHECKPOINTED = ("q5", "q7c", "kstate")


def run(folder: str, parallelism: int, host: str) -> str:
    """Measure the set; the lines go to `folder`/quick.jsonl, which is returned."""
    path = Path(folder, "quick.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for line in lines(parallelism, host):
            file.write(json.dumps(line) + "\n")
    return str(path)


def lines(parallelism: int, host: str) -> Iterator[dict[str, Any]]:
    for name in (*NEXMARK, "wordcount", "kstate"):
        yield measure(Setting(name, EVENTS, parallelism, host))
    for name in CHECKPOINTED:
        yield measure(Setting(name, EVENTS, parallelism, host, 1.0))
        base = 0
        for tasks in TASKS:
            line = measure(replace(Setting(name, EVENTS, parallelism, host), parallelism=tasks))
            base = base or line["events_per_s"]
            speedup = round(line["events_per_s"] / base, 2)
            yield {**line, "command": "scale", "tasks": tasks, "speedup": speedup}
    for rate in RATES:
        yield measure_latency(rate, SECONDS, parallelism, host)
