"""What the flight demo has to find, computed by pandas in one go, and the comparison with it.

The question: for each origin airport and airline, in tumbling one-hour windows of scheduled
departure (UTC): how many flights departed, their mean and greatest departure delay in minutes,
and how many were cancelled. A flight is cancelled when it has no departure time; it counts in no
delay. Reports that come more than `flight_data.BOUND` behind their event time are late: the
stream drops them to a side output, so the answer leaves them out and says how many there are.

Result columns: origin, carrier, airline, window_start (UTC), departures, mean_delay, max_delay,
cancellations. Delays are null in a window without a departure. Every (origin, carrier, hour) with
at least one on-time report has a row, exactly one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

if __package__:
    from .flight_data import BOUND, prepare
else:
    from flight_data import BOUND, prepare

KEY = ["origin", "carrier", "window_start"]
EXACT = ["airline", "departures", "cancellations"]
CLOSE = ["mean_delay", "max_delay"]
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Reference:
    """`windows`: the answer, sorted by KEY. `late_expected`: reports left out."""

    windows: pd.DataFrame
    late_expected: int
    reports: int


@dataclass
class Report:
    """The outcome of a comparison; `problems` says the first few differences in words."""

    windows: int
    matching: int
    missing: int
    unexpected: int
    duplicated: int
    problems: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        verdict = "equal to the reference" if self.equal else "DIFFERENT from the reference"
        lines = [f"{self.matching} of {self.windows} windows match: {verdict}", *self.problems]
        return "\n  ".join(lines)


def reference(data: str | Path) -> Reference:
    """The answer for the data that `flight_data.prepare` wrote into `data`."""
    reports = pq.read_table(Path(data) / "flights").to_pandas()
    airlines = pq.read_table(Path(data) / "airlines").to_pandas()
    late = reports["delivered"] - reports["event_time"] > BOUND
    return Reference(_windows(reports[~late], airlines), int(late.sum()), len(reports))


def _windows(reports: pd.DataFrame, airlines: pd.DataFrame) -> pd.DataFrame:
    frame = reports.assign(
        window_start=reports["event_time"].dt.floor("h"),
        departed=reports["dep_time"].notna().astype("int64"),
        cancelled=reports["dep_time"].isna().astype("int64"),
    )
    grouped = frame.groupby(KEY, sort=True).agg(
        departures=("departed", "sum"),
        mean_delay=("dep_delay", "mean"),
        max_delay=("dep_delay", "max"),
        cancellations=("cancelled", "sum"),
    )
    joined = grouped.reset_index().merge(airlines, on="carrier", how="left", validate="m:1")
    joined = joined.rename(columns={"name": "airline"})
    return joined[[*KEY, *EXACT, *CLOSE]].sort_values(KEY, ignore_index=True)


def read_result(folder: str | Path) -> pd.DataFrame:
    """The windows that the job wrote, sorted by KEY. `window_start` may be a timestamp or int64
    ms."""
    frame = pq.read_table(Path(folder)).to_pandas()
    start = frame["window_start"]
    if pd.api.types.is_integer_dtype(start):
        start = pd.to_datetime(start, unit="ms", utc=True)
    elif start.dt.tz is None:
        start = start.dt.tz_localize("UTC")
    frame["window_start"] = start.astype("datetime64[us, UTC]")
    for name in ("origin", "carrier"):
        frame[name] = frame[name].astype("str")
    return frame.sort_values(KEY, ignore_index=True)


def compare(result: str | Path | pd.DataFrame, expected: Reference) -> Report:
    """Compare what a job wrote (its folder, or the frame of `read_result`) with the answer:
    counts and names exactly, delays within a relative 1e-9, nulls at the same places."""
    found = result if isinstance(result, pd.DataFrame) else read_result(result)
    wanted = expected.windows.copy()
    wanted["window_start"] = wanted["window_start"].astype("datetime64[us, UTC]")
    duplicated = int(found.duplicated(KEY).sum())
    both = wanted.merge(
        found.drop_duplicates(KEY), on=KEY, how="outer", suffixes=("", "_found"), indicator=True
    )
    side = both["_merge"]
    report = Report(
        len(wanted), 0, int((side == "left_only").sum()), int((side == "right_only").sum()),
        duplicated,
    )  # fmt: skip
    pairs = both[side == "both"]
    wrong = {name: ~_same(pairs, name) for name in [*EXACT, *CLOSE]}
    bad = np.logical_or.reduce(list(wrong.values()))
    report.matching = int(len(pairs) - bad.sum())
    _explain(report, both, pairs, wrong)
    return report


def _same(pairs: pd.DataFrame, name: str) -> np.ndarray:
    left, right = pairs[name], pairs[f"{name}_found"]
    if name in EXACT:
        return (left == right).to_numpy(dtype=bool)
    a, b = left.to_numpy(dtype=float), right.to_numpy(dtype=float, na_value=np.nan)
    return np.isclose(a, b, rtol=TOLERANCE, atol=0.0, equal_nan=True)


def _explain(
    report: Report, both: pd.DataFrame, pairs: pd.DataFrame, wrong: dict[str, np.ndarray]
) -> None:
    if report.duplicated:
        report.problems.append(f"{report.duplicated} windows appear more than once")
    for side, text in (("left_only", "missing"), ("right_only", "not expected")):
        rows = both[both["_merge"] == side]
        if len(rows):
            first = ", ".join(str(v) for v in rows.iloc[0][KEY])
            report.problems.append(f"{len(rows)} windows are {text}, first: {first}")
    for name, mask in wrong.items():
        if mask.any():
            row = pairs[mask].iloc[0]
            where = ", ".join(str(v) for v in row[KEY])
            report.problems.append(
                f"{name} differs in {int(mask.sum())} windows, first at {where}: "
                f"expected {row[name]!r}, found {row[f'{name}_found']!r}"
            )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python examples/flight_reference.py <data folder> <result folder>")
    answer = reference(prepare(sys.argv[1]))
    outcome = compare(sys.argv[2], answer)
    print(outcome)
    print(f"late reports left out: {answer.late_expected} of {answer.reports}")
    raise SystemExit(0 if outcome.equal else 1)
