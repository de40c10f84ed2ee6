"""The kernels of `state.block_kernels` in plain Python: which bytes belong to which block."""

from __future__ import annotations


def units(length: int) -> int:
    """16-byte units for so many bytes; at most an eighth more than it needs."""
    needed = -(-length // 16)
    if needed <= 64:
        return needed
    step = 1 << (needed - 1).bit_length() - 4
    return -(-needed // step) * step


class Blocks:
    """Free blocks as lists per size, the last freed first."""

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self.end = 0

    def take(self, length: int) -> int:
        size = units(length)
        if size and self.free.get(size):
            return self.free[size].pop()
        start, self.end = self.end, self.end + size
        return start if size else 0

    def give(self, start: int, length: int) -> None:
        if length:
            self.free.setdefault(units(length), []).append(start)
