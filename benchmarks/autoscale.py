"""The autoscaler on simulated days: what following a load costs, and how far a job lags.

Beside it an oracle, which has just enough at each moment and rescales for nothing, and fixed
parallelisms: what the peak takes and what the mean does. Nothing runs but a queueing model
(`strom.testing.autoscaling`), so lines are the same on each machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from strom.autoscaling.shape import Vertex, chain_of
from strom.core.autoscaler_config import AutoscalerConfig
from strom.core.ids import VertexId
from strom.testing.autoscaling.curves import CURVES, drawn
from strom.testing.autoscaling.pipeline import Work
from strom.testing.autoscaling.promises import broken
from strom.testing.autoscaling.running import Run, Setting, enough, oracle_seconds, simulate

from .arguments import names_of

SOURCE, MAP, WINDOW, SINK = (VertexId(name) for name in ("source", "map", "window", "sink"))

RATE: Final = 60_000.0
"""Records/s that curves are around."""


def settings(seed: int) -> Setting:
    """A source of 32 partitions, a map, a keyed window and a sink, that begin with one subtask."""
    shape = chain_of(
        [
            Vertex(SOURCE, "Source", partitions=32),
            Vertex(MAP, "Map"),
            Vertex(WINDOW, "Window", keyed=True),
            Vertex(SINK, "Sink"),
        ]
    )
    works = {
        SOURCE: Work(50_000),
        MAP: Work(20_000, 2.0),
        WINDOW: Work(30_000, 0.01),
        SINK: Work(5_000),
    }
    start = {vertex.id: 1 for vertex in shape.vertices}
    return Setting(shape, works, start, seed=seed)


def measure_autoscale(
    curves: Sequence[str], seconds: int, seeds: int, config: AutoscalerConfig
) -> Iterator[dict[str, Any]]:
    """A line per curve and seed. `cost`: subtask-seconds, of the oracle's."""
    for name in curves:
        for seed in range(seeds):
            setting, curve = settings(seed), drawn(name, seconds, RATE, seed)
            oracle = oracle_seconds(setting, curve)
            followed = simulate(setting, curve, config)
            line = {
                "name": "autoscale",
                "curve": name,
                "seed": seed,
                "seconds": seconds,
                "rescales": len(followed.decisions),
                **_figures("", followed, oracle),
                "oracle_subtask_s": round(oracle),
            }
            for fixed, rate in (("peak", curve.max()), ("mean", curve.mean())):
                start = enough(setting, float(rate) / config.target_utilization)
                line |= _figures(
                    fixed, simulate(replace(setting, start=start), curve, None), oracle
                )
            yield {**line, "broken": broken(followed, config)}


def _figures(fixed: str, run: Run, oracle: float) -> dict[str, Any]:
    p50, p99, most = np.percentile(run.lags(), [50, 99, 100])
    prefix = f"{fixed}_" if fixed else ""
    return {
        f"{prefix}lag_p50_s": round(float(p50), 1),
        f"{prefix}lag_p99_s": round(float(p99), 1),
        f"{prefix}lag_max_s": round(float(most), 1),
        f"{prefix}subtask_s": run.subtask_seconds,
        f"{prefix}cost": round(run.subtask_seconds / oracle, 2),
    }


def chosen(names: str) -> list[str]:
    """The curves that the text stands for."""
    return names_of(names, "curve", CURVES, all=CURVES)
