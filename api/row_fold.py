"""The steps of one built-in aggregate over values, one by one; see `row_folds`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aggregates import Aggregate


@dataclass(frozen=True)
class Fold(ABC):
    """One aggregate's steps. `numbers` are sequence numbers of arrival, positive, ascending."""

    aggregate: Aggregate

    @property
    def kind(self) -> str:
        return self.aggregate.kind

    @abstractmethod
    def create(self) -> list[Any]: ...

    @abstractmethod
    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        """Fold a value that is not null (for arg_min and arg_max: (value, by), by not null)."""

    @abstractmethod
    def result(self, accumulator: list[Any]) -> Any: ...

    @abstractmethod
    def merge(self, left: list[Any], right: list[Any]) -> list[Any]: ...

    def latest(self, accumulator: list[Any]) -> int:
        """The greatest sequence number in there, -1 if none is kept."""
        return -1


def better(item: Any, than: Any, largest: bool) -> bool:
    """Whether `item` replaces the extreme. NaN is the greatest value; equals keep the first."""
    if largest:
        return bool(item > than or (item != item and than == than))
    return bool(item < than or (than != than and item == item))
