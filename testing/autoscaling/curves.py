"""Load curves: records/s that come to a job's source, second by second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Curve = npt.NDArray[np.float64]

SECONDS: Final = 3 * 3600


def flat(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    return np.full(seconds, float(rate))


def step(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """Up to three times as much at a third, back at two thirds."""
    curve = np.full(seconds, float(rate))
    curve[seconds // 3 : 2 * seconds // 3] *= 3.0
    return curve


def ramp(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """From a quarter to twice as much."""
    return rate * np.linspace(0.25, 2.0, seconds)


def day(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """A day in the time there is: a fifth at night, the most in the evening, and noise of some
    minutes."""
    hours = np.linspace(0.0, 24.0, seconds)
    shape = 0.6 - 0.35 * np.cos((hours - 3.0) / 24 * 2 * np.pi)
    shape += 0.25 * np.exp(-((hours - 20.0) ** 2) / 4)
    noise = np.interp(
        np.arange(seconds),
        np.arange(0, seconds + 300, 300),
        rng.normal(1.0, 0.05, seconds // 300 + 2)[: len(np.arange(0, seconds + 300, 300))],
    )
    return rate * shape * np.maximum(noise, 0.5)


def spikes(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """Now and then up to five times as much, for up to two minutes."""
    curve = np.full(seconds, float(rate))
    for _ in range(max(1, seconds // 1800)):
        at, long = int(rng.integers(0, seconds)), int(rng.integers(20, 120))
        curve[at : at + long] *= rng.uniform(2.0, 5.0)
    return curve


def overload(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """For a third of the time more than any parallelism can handle."""
    curve = np.full(seconds, float(rate))
    curve[seconds // 3 : 2 * seconds // 3] *= 1000.0
    return curve


def waves(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """Up and down by half with a period near that of the autoscaler's own delays: a trap."""
    period = float(rng.uniform(120.0, 1800.0))
    return rate * (1.0 + 0.5 * np.sin(np.arange(seconds) / period * 2 * np.pi))


def edge(seconds: int, rate: float, rng: np.random.Generator) -> Curve:
    """Noise around one load, which may be that at which one subtask more is needed: a trap."""
    slow = np.repeat(rng.normal(1.0, 0.08, seconds // 60 + 1), 60)[:seconds]
    return rate * np.maximum(slow, 0.1)


CURVES: Final[dict[str, Callable[[int, float, np.random.Generator], Curve]]] = {
    "flat": flat,
    "step": step,
    "ramp": ramp,
    "day": day,
    "spikes": spikes,
    "overload": overload,
    "waves": waves,
    "edge": edge,
}


def drawn(name: str, seconds: int, rate: float, seed: int) -> Curve:
    """A curve by its name; `rate`: what it is around."""
    return CURVES[name](seconds, rate, np.random.default_rng(seed))
