"""Runs a case every way and compares."""

from __future__ import annotations

from collections.abc import Callable

from .cases import Case
from .comparing import difference
from .jobs import job_results
from .limits import small_limits
from .model import model_result
from .operators import by_function, columnar, combined, on_operator, on_rows, stored
from .results import Result, settled


class Disagreement(AssertionError):
    """Two ways gave different results; the message has the case."""


def run_case(case: Case, jobs: bool = False) -> None:
    """Raises Disagreement."""
    with small_limits(case.tight):
        _run_case(case, jobs)


def _run_case(case: Case, jobs: bool) -> None:
    way = ""
    try:
        ways: dict[str, Callable[[], Result | None]] = {
            "columns": lambda: on_operator(case, columnar(case), cuts=False),
            "cut": lambda: on_operator(case, columnar(case), cuts=True),
            "stored": lambda: stored(case),
            "combined": lambda: combined(case),
            "rows": lambda: on_rows(case, cuts=False),
            "rows, cut": lambda: on_rows(case, cuts=True),
            "by a function": lambda: by_function(case),
        }
        way = "model"
        expected = model_result(case)
        found: dict[str, Result] = {}
        for way, run in ways.items():
            result = run()
            if result is not None:
                found[way] = result
                if expected is not None:
                    _compare(case, "model", way, expected, result)
        for way in [name for name in found if name != "columns"]:
            _compare(case, "columns", way, found["columns"], found[way])
        way = "jobs"
        if jobs and expected is not None:
            for way, in_time, reference, result in job_results(case):
                _compare(in_time, "model", f"jobs, {way}", reference, result)
    except Disagreement:
        raise
    except Exception as error:
        text = f"{case.describe()}\n  {way}: {type(error).__name__}: {error}"
        raise Disagreement(text) from error


def _compare(case: Case, one: str, other: str, left: Result, right: Result) -> None:
    problems = [difference(settled(case, left.rows), settled(case, right.rows))]
    if left.late is not None and right.late is not None:
        problems.append(difference(left.late, right.late).replace("missing", "not late"))
    if None not in (left.late_count, right.late_count) and left.late_count != right.late_count:
        problems.append(f"{left.late_count} and {right.late_count} late records")
    if left.schemas and right.schemas and left.schemas != right.schemas:
        problems.append(f"schemas {left.schemas} and {right.schemas}")
    text = "\n    ".join(filter(None, problems))
    if text:
        raise Disagreement(f"{case.describe()}\n  {one} != {other}:\n    {text}")
