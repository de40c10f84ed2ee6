"""Which faults come when: a function of a seed and of nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final, Literal, get_args

Kind = Literal["task", "coordinator", "raylet", "storage", "rescale"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

RESTS_S: Final = MappingProxyType(
    {"task": 0.0, "coordinator": 35.0, "raylet": 40.0, "storage": 20.0, "rescale": 10.0}
)
"""From one fault to the next of its kind, at least. A job gives up when ten coordinators die within
five minutes; another node starts, and Ray finds out, while the one before is missing."""

AWAY_S: Final = (2.0, 8.0)
"""For how long the storage may be away."""

MOST: Final = 4
"""Parallelisms of rescales are 1 to this."""


@dataclass(frozen=True)
class Fault:
    """`at`: seconds from when the job runs. `draw`: which of the processes that are there then, by
    its remainder; of a rescale the parallelism. `seconds`: for how long, of the storage's."""

    at: float
    kind: Kind
    draw: int
    seconds: float = 0.0


def faults(seed: int, every: float, kinds: Collection[Kind] = KINDS) -> Iterator[Fault]:
    """For ever, one each `every` seconds, give or take a half. None of `kinds`: no faults."""
    rng = Random(f"soak {seed}")
    last = dict.fromkeys(kinds, float("-inf"))
    at = 0.0
    while last:
        at += every * rng.uniform(0.5, 1.5)
        rested = [kind for kind in KINDS if kind in last and at >= last[kind] + RESTS_S[kind]]
        draw, seconds = rng.randrange(1 << 30), rng.uniform(*AWAY_S)
        if not rested:
            continue
        kind = rng.choice(rested)
        last[kind] = at
        match kind:
            case "rescale":
                yield Fault(at, kind, 1 + draw % MOST)
            case "storage":
                yield Fault(at, kind, draw, seconds)
            case _:
                yield Fault(at, kind, draw)
