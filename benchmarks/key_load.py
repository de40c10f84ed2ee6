"""What it takes of a task's time to look at the keys that it sends: the most, as samples between
two reports are limited, however fast the task is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from strom.core.config import JobConfig
from strom.engine.exchange.key_load import PER_REPORT, KeyLoad

ROWS: Final = 16_384
ROUNDS: Final = 50
TRIES: Final = 20


def measure_key_load() -> Iterator[dict[str, Any]]:
    """A line per kind of keys. `share`: of a task's time, at the default interval of reports."""
    rng = np.random.default_rng(0)
    uniform, skewed = rng.integers(0, 100_000, ROWS), rng.zipf(1.3, ROWS) % 100_000
    texts = [f"key-{n}" for n in skewed.tolist()]
    for name, keys in (
        ("int64, uniform", pa.array(uniform)),
        ("int64, skewed", pa.array(skewed)),
        ("texts, skewed", pa.array(texts)),
        ("texts as objects, skewed", texts),
    ):
        load = KeyLoad(128, 8, 0)
        sample_s, report_s = _time(_look(load, keys)), _time(load.report)
        interval_s = JobConfig().metrics_interval.total_seconds()
        yield {
            "name": "key_load",
            "keys": name,
            "sample_us": round(sample_s * 1e6, 1),
            "report_us": round(report_s * 1e6, 1),
            "share": round((PER_REPORT * sample_s + report_s) / interval_s, 5),
        }


def _look(load: KeyLoad, keys: Any) -> Callable[[], object]:
    if isinstance(keys, list):
        return lambda: load.saw_keys(keys)
    batch = pa.record_batch({"k": keys})
    return lambda: load.saw_columns(batch)


def _time(call: Callable[[], object]) -> float:
    """CPU seconds of a call, in the best round."""
    call()
    best = float("inf")
    for _ in range(TRIES):
        began = time.thread_time()
        for _ in range(ROUNDS):
            call()
        best = min(best, (time.thread_time() - began) / ROUNDS)
    return best
