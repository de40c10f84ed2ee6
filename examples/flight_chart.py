"""One picture of the flight demo's result: `python examples/flight_chart.py <result> <file.png>`.

Left: how the mean departure delay grows over the day, per airport. Right: the airlines with most
departures, with their mean delay and the share of flights cancelled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

if __package__:
    from .flight_reference import read_result
else:
    from flight_reference import read_result

AIRPORTS = {"EWR": "Newark (EWR)", "JFK": "Kennedy (JFK)", "LGA": "LaGuardia (LGA)"}
COLOURS = {"EWR": "#0072B2", "JFK": "#D55E00", "LGA": "#009E73"}
_INK, _FAINT = "#333333", "#DDDDDD"


def draw(result: str | Path | pd.DataFrame, target: str | Path, airlines: int = 10) -> Path:
    """Draw the windows that the job wrote (its folder, or the frame of `read_result`) as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    windows = result if isinstance(result, pd.DataFrame) else read_result(result)
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5.6), layout="constrained")
    _delay_by_hour(left, windows)
    _top_airlines(right, windows, airlines)
    total = int(windows["departures"].sum())
    figure.suptitle(
        f"New York departures in 2013: {total:,} flights in {len(windows):,} one-hour windows",
        fontsize=14,
        color=_INK,
    )
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def delay_by_hour(windows: pd.DataFrame) -> pd.DataFrame:
    """Mean delay (minutes) per local hour of day (rows) and origin (columns), over all flights."""
    hour = windows["window_start"].dt.tz_convert("America/New_York").dt.hour.rename("hour")
    frame = windows.assign(total=windows["mean_delay"].fillna(0.0) * windows["departures"])
    sums = frame.groupby([hour, "origin"])[["total", "departures"]].sum()
    sums = sums[sums["departures"] >= 50]
    return (sums["total"] / sums["departures"]).unstack("origin")


def by_airline(windows: pd.DataFrame) -> pd.DataFrame:
    """Per airline: departures, mean delay (minutes), cancelled share; most departures first."""
    frame = windows.assign(total=windows["mean_delay"].fillna(0.0) * windows["departures"])
    sums = frame.groupby("airline")[["total", "departures", "cancellations"]].sum()
    planned = sums["departures"] + sums["cancellations"]
    table = pd.DataFrame(
        {
            "departures": sums["departures"],
            "mean_delay": sums["total"] / sums["departures"].where(sums["departures"] > 0),
            "cancelled": sums["cancellations"] / planned,
        }
    )
    return table.sort_values("departures", ascending=False)


def _delay_by_hour(axes: Any, windows: pd.DataFrame) -> None:
    table = delay_by_hour(windows)
    for origin in table.columns:
        line = table[origin].dropna()
        name, colour = AIRPORTS.get(origin, origin), COLOURS.get(origin)
        axes.plot(line.index, line, marker="o", markersize=4, linewidth=2, color=colour, label=name)
    axes.set_title("Delays pile up over the day", loc="left", fontsize=12, color=_INK)
    axes.set_xlabel("scheduled hour of departure (New York time)")
    axes.set_ylabel("mean departure delay (minutes)")
    axes.set_xticks(range(5, 24, 2), [f"{h}:00" for h in range(5, 24, 2)])
    axes.set_ylim(bottom=min(0.0, float(np.nanmin(table.to_numpy()))))
    axes.legend(frameon=False, loc="upper left")
    _plain(axes, grid="y")


def _top_airlines(axes: Any, windows: pd.DataFrame, count: int) -> None:
    table = by_airline(windows).head(count).iloc[::-1]
    bars = axes.barh(table.index, table["mean_delay"], color="#8FB3CF")
    labels = [
        f"{row.mean_delay:.1f} min   {row.departures:,.0f} flights, {row.cancelled:.1%} cancelled"
        for row in table.itertuples()
    ]
    axes.bar_label(bars, labels, padding=4, fontsize=8.5, color=_INK)
    axes.set_xlim(0, float(table["mean_delay"].max()) * 1.75)
    axes.set_title(f"The {len(table)} largest airlines", loc="left", fontsize=12, color=_INK)
    axes.set_xlabel("mean departure delay (minutes)")
    _plain(axes, grid="x")


def _plain(axes: Any, grid: str) -> None:
    axes.grid(axis=grid, color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK, length=0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python examples/flight_chart.py <result folder> <file.png>")
    print(f"chart: {draw(sys.argv[1], sys.argv[2])}")
