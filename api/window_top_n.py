"""`top_n` of windowed streams: the first records of each key and window in an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigurationError
from .order import to_order
from .specs import TopNWindow
from .validation import require_positive, require_text

if TYPE_CHECKING:
    from .data_stream import DataStream

MAX_N = 100_000
"""At least so many rows may be kept per key and slice of time."""


class WindowTopN:
    """Mixin of windowed streams."""

    if TYPE_CHECKING:

        def _operator(self, function: Any, what: str, output_type: Any) -> DataStream: ...

    def top_n(self, n: int, order_by: Any, rank: str | None = None) -> DataStream:
        """The `n` records of each key and window that come first in `order_by`, ties in order of
        arrival, with `window_start` and `window_end` appended; all at once when the window fires.
        With `rank` they get an int64 column of that name with their place from 1.

        order_by: a column name, ("price", "desc"), or a list of these. Nulls come last in either
        direction; NaN is the greatest number.

        >>> from strom import StreamExecutionEnvironment, TumblingEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> bids = env.from_collection([{"a": 1, "p": p, "ts": p} for p in (3, 9, 5)])
        >>> bids = bids.with_event_time("ts")
        >>> windows = bids.key_by("a").window(TumblingEventTimeWindows.of(10))
        >>> best = windows.top_n(2, ("p", "desc"), rank="place")
        >>> [(row.p, row.place) for row in best.execute_and_collect()]
        [(9, 1), (5, 2)]
        """
        require_positive("top_n", "n", n, MAX_N)
        if rank is not None:
            require_text("top_n", "rank", rank)
            if rank in ("window_start", "window_end"):
                raise ConfigurationError(f"top_n: rank cannot be '{rank}', which exists already")
        function = TopNWindow(n, to_order("top_n", order_by), rank)
        return self._operator(function, f"top {n}", None)
