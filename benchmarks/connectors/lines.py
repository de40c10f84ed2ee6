"""What all lines have: rates, CPU and, where there is one, a target and whether it was reached."""

from __future__ import annotations

from typing import Any

from strom import JobExecutionResult, StromError

from ..measure import processes_of

Line = dict[str, Any]


class WrongResult(StromError):
    """A measurement whose job did not do what it should: other counts than expected."""


def rates(records: int, record_bytes: int, seconds: float, cpu_s: float) -> Line:
    """`cpu_s`: of the processes that are measured, without the broker."""
    return {
        "record_bytes": record_bytes,
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds),
        "mb_per_s": round(records * record_bytes / seconds / 1e6, 1),
        "cpu_s_per_m_records": round(cpu_s / records * 1e6, 3),
    }


def at_least(line: Line, name: str, target: float) -> Line:
    """The line, and whether what is under `name` reaches the target."""
    return {**line, "target": target, "within": line[name] >= target}


def at_most(line: Line, name: str, target: float) -> Line:
    return {**line, "target": target, "within": line[name] <= target}


def expect(found: int, wanted: int, what: str) -> None:
    """Raises WrongResult unless the numbers are equal."""
    if found != wanted:
        raise WrongResult(f"{what}: {found} instead of {wanted}")


def tasks_cpu_s(result: JobExecutionResult) -> float:
    """Of a job's tasks, from when they were up."""
    return float(sum(p["cpu_s"] - p["opened_cpu_s"] for p in processes_of(result.metrics)))


def peak_rss_mb(result: JobExecutionResult) -> int:
    return int(sum(p["peak_rss_bytes"] for p in processes_of(result.metrics))) >> 20
