"""What the package's root registers as `core.shown.Shows`."""

from __future__ import annotations

from .drawing import draw as graph_html
from .jobs import job_html, watch
from .markup import message as message_html
from .plotting import check_plot, plot
from .showing import show

__all__ = ["check_plot", "graph_html", "job_html", "message_html", "plot", "show", "watch"]
