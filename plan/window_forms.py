"""What window operators are built from: plain data, which plan chooses and operators run.

Sliced     slices of time, shared by the windows they lie in; fire at their end or by an interval
Panes      a pane for each window of a key: triggers that count, or that purge before the end
Counted    the n-th record of a key decides
Sessions   windows that records extend and join
RowByRow   any assigner, trigger and function
"""

from __future__ import annotations

from dataclasses import dataclass

from .slicing import Slicing


@dataclass(frozen=True)
class Firing:
    """When windows fire: at their end only, or at multiples of `interval` ms, of event time or of
    the clock, as well."""

    interval: int | None = None
    by_clock: bool = False


AT_END = Firing()


@dataclass(frozen=True)
class Counting:
    """Windows of `size` records that start every `slide`; `purge`: emptied when they fire."""

    size: int
    slide: int
    purge: bool = True

    @property
    def lanes(self) -> int:
        return -(-self.size // self.slide)


@dataclass(frozen=True)
class PaneRule:
    """When panes fire: at every `count`-th record, or by time: at multiples of `interval` ms, of
    event time or of the clock, and at the window's end. Those that fire by time are purged."""

    count: int | None = None
    purge: bool = True
    interval: int | None = None
    by_clock: bool = False

    @property
    def counting(self) -> Counting:
        """What fires between records; where time fires, each late record does."""
        count = self.count or 1
        return Counting(count, count, self.purge)


@dataclass(frozen=True)
class Sliced:
    slicing: Slicing
    firing: Firing = AT_END


@dataclass(frozen=True)
class Panes:
    slicing: Slicing
    rule: PaneRule


@dataclass(frozen=True)
class Counted:
    counting: Counting


@dataclass(frozen=True)
class Sessions:
    """They fire at their end."""


@dataclass(frozen=True)
class RowByRow:
    pass


WindowForm = Sliced | Panes | Counted | Sessions | RowByRow
