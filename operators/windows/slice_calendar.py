"""When slices of time have to fire a window, or are over."""

from __future__ import annotations

from collections.abc import Iterable

from ...plan.slicing import Slicing


class SliceCalendar:
    """Invariant: `due` is the least watermark at which a slice has to fire a window or be
    forgotten, or less; None without slices."""

    def __init__(self, slicing: Slicing, lateness: int = 0) -> None:
        self.slicing = slicing
        self.lateness = lateness
        self.due: int | None = None

    def note(self, slice_end: int, watermark: int) -> None:
        """The slice holds records, and its windows have fired up to `watermark`."""
        windows = self.slicing.window_ends(slice_end)
        unfired = (window - 1 for window in windows if window - 1 > watermark)
        due = next(unfired, windows[-1] - 1 + self.lateness)
        self.due = due if self.due is None else min(self.due, due)

    def windows(self, slices: Iterable[int], after: int, until: int) -> list[int]:
        """The windows over `slices` whose last milliseconds are in (after, until], by end."""
        ends = {end for slice_end in slices for end in self.slicing.window_ends(slice_end)}
        return sorted(end for end in ends if after < end - 1 <= until)

    def over(self, windows: range, watermark: int) -> bool:
        """Whether records of these windows, of which there are some, are late for all of them."""
        return windows[-1] - 1 + self.lateness <= watermark

    def take_over(self, slices: Iterable[int], watermark: int) -> list[int]:
        """Windows have fired up to `watermark`: those of the `slices`, which are all there are,
        that it is over with. The caller drops them."""
        self.due = None
        gone = []
        for end in slices:
            if self.over(self.slicing.window_ends(end), watermark):
                gone.append(end)
            else:
                self.note(end, watermark)
        return gone
