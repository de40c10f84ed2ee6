"""Slices: the pieces event time is cut into so that each record is aggregated once.

Sliding windows overlap. Cutting time at every window start and every window end gives slices that
lie wholly inside or outside each window, at most two per slide; a window is the union of its
slices. (Slices of gcd(size, slide) would do too, but there can be far more of them: 10 s by 3 s has
two slices per slide here, three there.) A tumbling window is its own only slice.

    size 5, slide 3    |--|-|--|-|--|-|         a slice is named by its end, a window by its end too
    windows            [0      5)
                           [3      8)

Cumulating windows grow by a step up to their full size and then start anew: their slices are the
steps.

    size 6, step 2     |---|---|---|---|
    windows            [0  2)
                       [0      4)
                       [0          6)
                                   [6  8)
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import GraphError


@dataclass(frozen=True)
class Slicing:
    """Windows of `size` ms that start at `offset + k * slide`, for every integer k."""

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0:
            raise GraphError(f"window size {self.size} and slide {self.slide} must be positive")

    @property
    def head(self) -> int:
        """Length of the slice that begins at a window start; 0 when one slice fills the slide.

        When slide > size the slice behind the head is a gap that belongs to no window."""
        return self.size % self.slide if self.size >= self.slide else self.size

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide

    def slice_end(self, timestamp: int) -> int:
        """The end of the slice that holds one timestamp."""
        into = (timestamp - self.offset) % self.slide
        return timestamp - into + (self.head if into < self.head else self.slide)

    def window_ends(self, slice_end: int) -> range:
        """Ends of the windows that hold the slice, ascending; empty for a gap."""
        first = slice_end + (self.offset + self.size - slice_end) % self.slide
        return range(first, slice_end + self.size, self.slide)

    def window_start(self, window_end: int) -> int:
        """The start of the window that ends there."""
        return window_end - self.size

    def holds(self, window_end: int, slice_end: int) -> bool:
        """Whether the slice lies in the window."""
        return self.window_start(window_end) < slice_end <= window_end


@dataclass(frozen=True)
class CumulateSlicing(Slicing):
    """Windows that start at `offset + k * size` and end at each multiple of `slide` (the step, of
    which `size` is a multiple) after that, up to `size`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % self.slide:
            raise GraphError(
                f"cumulating windows of {self.size} ms need a step that divides it, not "
                f"{self.slide} ms"
            )

    def window_ends(self, slice_end: int) -> range:
        return range(slice_end, self.window_start(slice_end) + self.size + 1, self.slide)

    def window_start(self, window_end: int) -> int:
        return window_end - 1 - (window_end - 1 - self.offset) % self.size
