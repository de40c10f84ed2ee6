"""HyperLogLog over single values: the same registers and estimates as `operators/kernels/distinct`.

A value's stable hash (xxh64, the one that routes keys) gives its register and rank. The estimator
is Ertl's, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ...state.hashing import stable_hash

_MASK = 2**64 - 1


def register_and_rank(value: Any, precision: int) -> tuple[int, int]:
    """The register of a value and its rank there."""
    return split_hash(stable_hash(value), precision)


def split_hash(hashed: int, precision: int) -> tuple[int, int]:
    """The first bits of a hash, and the position of the first 1 in those behind them, from 1."""
    rest = (hashed << precision & _MASK) | 1 << (precision - 1)
    return hashed >> (64 - precision), 65 - rest.bit_length()


def estimate(ranks: Iterable[int], precision: int) -> int:
    """The number of distinct values from the ranks of all registers that are set."""
    registers = 1 << precision
    counts = [0] * (66 - precision)
    for rank in ranks:
        counts[rank] += 1
    z = registers * tau(1.0 - counts[-1] / registers)
    for count in counts[-2:0:-1]:
        z = 0.5 * (z + count)
    z += registers * sigma((registers - sum(counts)) / registers)
    return round(registers * (registers / (2.0 * math.log(2.0))) / z)


def sigma(x: float) -> float:
    """x + sum of x**(2**k) * 2**(k - 1) for k >= 1; infinite for 1."""
    if x == 1.0:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


def tau(x: float) -> float:
    """(1 - x - sum of (1 - x**(2**-k))**2 * 2**-k for k >= 1) / 3."""
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) * (1.0 - x) * y
    return z / 3.0
