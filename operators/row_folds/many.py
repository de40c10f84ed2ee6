"""The folds that keep a varying number of values: distinct counts and lists. See `numbers`."""

from __future__ import annotations

import heapq
from typing import Any

from .hyperloglog import estimate, register_and_rank
from .numbers import Fold, better


class Distinct(Fold):
    def create(self) -> list[Any]:
        return [set()]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator[0].add(distinct_key(item))

    def result(self, accumulator: list[Any]) -> Any:
        return len(accumulator[0])

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [left[0] | right[0]]


class Sketch(Fold):
    def create(self) -> list[Any]:
        return [{}]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        register, rank = register_and_rank(item, self.aggregate.number)
        ranks = accumulator[0]
        if rank > ranks.get(register, 0):
            ranks[register] = rank

    def result(self, accumulator: list[Any]) -> Any:
        return estimate(accumulator[0].values(), self.aggregate.number)

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        merged = dict(left[0])
        for register, rank in right[0].items():
            merged[register] = max(rank, merged.get(register, 0))
        return [merged]


class Collect(Fold):
    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator.append((number, item))

    def result(self, accumulator: list[Any]) -> Any:
        return [item for _, item in accumulator]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return list(heapq.merge(left, right, key=lambda pair: pair[0]))

    def latest(self, accumulator: list[Any]) -> int:
        return int(accumulator[-1][0]) if accumulator else -1


class Best(Fold):
    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        largest = self.kind == "largest"
        at = len(accumulator)
        while at and better(item, accumulator[at - 1], largest):
            at -= 1
        accumulator.insert(at, item)
        del accumulator[self.aggregate.number :]

    def result(self, accumulator: list[Any]) -> Any:
        return list(accumulator)

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        merged = list(left)
        for item in right:
            self.add(merged, item, 0)
        return merged


def distinct_key(item: Any) -> Any:
    """Equal for values that count as one: NaN is one value (None stands for it)."""
    if isinstance(item, float):
        return None if item != item else item
    if isinstance(item, (list, tuple)):
        return ("list", *map(distinct_key, item))
    if isinstance(item, dict):
        return ("struct", *((name, distinct_key(value)) for name, value in item.items()))
    return item
