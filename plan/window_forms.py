"""What window operators are built from: plain data, which plan chooses and operators run.

Sliced     slices of time, shared by the windows they lie in, which fire at their end
Ticking    the same, which fire by an interval as well
Panes      a pane for each window of a key: triggers that count, or that purge before the end
Counted    the n-th record of a key decides
Sessions   windows that records extend and join
RowByRow   any assigner, trigger and function

A `WindowForm` is one kind of windows on columns. `operators/window_choice.py` names the windower of
each, which is made of the form's fields; `plan/windows._form` says which windows have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
class WindowForm(ABC):
    """A kind of windows on columns: a frozen dataclass whose fields its windower takes, in
    order."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What `explain()` calls it."""


@dataclass(frozen=True)
class Sliced(WindowForm):
    slicing: Slicing

    @property
    def name(self) -> str:
        return "sliced windows"


@dataclass(frozen=True)
class Ticking(WindowForm):
    slicing: Slicing
    firing: Firing

    @property
    def name(self) -> str:
        by_clock = " by the clock" if self.firing.by_clock else ""
        return f"sliced windows that fire every {self.firing.interval} ms{by_clock}"


@dataclass(frozen=True)
class Panes(WindowForm):
    slicing: Slicing
    rule: PaneRule

    @property
    def name(self) -> str:
        return "windows in panes"


@dataclass(frozen=True)
class Counted(WindowForm):
    counting: Counting

    @property
    def name(self) -> str:
        return "windows by count"


@dataclass(frozen=True)
class Sessions(WindowForm):
    """They fire at their end."""

    @property
    def name(self) -> str:
        return "session windows"


@dataclass(frozen=True)
class RowByRow:
    """No form on columns."""
