"""Runs a connected case every way and compares."""

from __future__ import annotations

from typing import Any

from ..running import Disagreement
from .cases import ConnectedCase
from .jobs import buckets, job_ways
from .model import Model
from .operators import on_operator, stored


def run_connected(case: ConnectedCase, jobs: bool = False) -> None:
    """Raises Disagreement."""
    way = "model"
    try:
        expected = Model(case).run()
        for way, cuts in (("operator", False), ("cut", True)):
            _compare(case, way, expected, on_operator(case, cuts))
        way = "stored"
        if case.seed % 4 == 1:  # to open databases takes longer than all else
            _compare(case, way, expected, stored(case))
        way = "jobs"
        if jobs:
            made = buckets(case)
            for name, run in job_ways(case):
                way = f"jobs, {name}"
                found = run()
                if found is not None:
                    _compare(case, way, made, found)
    except Disagreement:
        raise
    except Exception as error:
        text = f"{case.describe()}\n  {way}: {type(error).__name__}: {error}"
        raise Disagreement(text) from error


def _compare(case: ConnectedCase, way: str, expected: dict[Any, Any], found: Any) -> None:
    wrong = [key for key in {*expected, *found} if expected.get(key) != found.get(key)]
    if wrong:
        key = min(wrong, key=repr)
        raise Disagreement(
            f"{case.describe()}\n  model != {way}: {len(wrong)} differ, for instance {key!r}:\n"
            f"    {expected.get(key)}\n    {found.get(key)}"
        )
