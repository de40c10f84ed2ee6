"""Paths that a dashboard needs besides Flink's."""

from __future__ import annotations

from fastapi import APIRouter

from .asking import View
from .figure_shapes import Figures, figures_of

router = APIRouter(prefix="/jobs/{jobid}", tags=["dashboard"])


@router.get("/figures")
def figures(view: View) -> Figures:
    """Rates, load, watermarks and memory of all vertices."""
    return figures_of(view)
