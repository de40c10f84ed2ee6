"""A job's metrics as Ray's own: its dashboard and its Prometheus endpoints show them, as
`ray_strom_<name>`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from ...core.failure_text import described
from .metric_samples import PREFIX, Sample

log = logging.getLogger("strom")

Make = Callable[[str, tuple[str, ...]], Any]
"""A gauge of Ray's, by its name and the keys of its tags."""


def _ray_gauge(name: str, keys: tuple[str, ...]) -> Any:
    from ray.util.metrics import Gauge

    return Gauge(name, description=f"strom: {name.removeprefix(PREFIX)}", tag_keys=keys)


class RayReporter:
    """Sets Ray's gauges every `interval` on a thread of its own, in a process of Ray's."""

    def __init__(
        self, samples: Callable[[], Iterable[Sample]], interval: timedelta, make: Make = _ray_gauge
    ) -> None:
        self._samples = samples
        self._interval_s = interval.total_seconds()
        self._make = make
        self._gauges: dict[str, tuple[Any, tuple[str, ...]]] = {}
        """By name, with the keys of their tags, which cannot change."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strom-ray-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Report once more, then never again; without waiting for it."""
        self._over.set()

    def report(self) -> None:
        """Set all gauges."""
        for sample in self._samples():
            keys = tuple(key for key, _ in sample.labels)
            gauge, known = self._gauges.get(sample.name) or self._add(sample.name, keys)
            if keys != known:
                # Ray fixes the tags of a name; what has other labels gets a name of its own.
                name = f"{sample.name}_by_{'_'.join(keys)}"
                gauge, _ = self._gauges.get(name) or self._add(name, keys)
            gauge.set(sample.value, tags=dict(sample.labels))

    def _add(self, name: str, keys: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        self._gauges[name] = (self._make(PREFIX + name, keys), keys)
        return self._gauges[name]

    def _run(self) -> None:
        said = False
        while True:
            over = self._over.wait(self._interval_s)
            try:
                self.report()
            except Exception as error:  # the job goes on without
                if not said:
                    log.warning("metrics cannot be handed to Ray: %s", described(error))
                said = True
            if over:
                return
