"""`stream.plot()`: which points, and a figure of them."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from strom import (
    ConfigurationError,
    JobFailedError,
    Row,
    RowKind,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    sum_,
)
from strom.connectors.datagen import NumberSequenceSource
from strom.core.shown import Plotted
from strom.notebook.plotting import Drawing, labels
from strom.notebook.series import MOST_SERIES, Points

Env = StreamExecutionEnvironment


@pytest.fixture
def env() -> Iterator[Env]:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        yield env


def windows(env: Env) -> Any:
    rows = [{"k": k, "at": 1000 * n, "v": n} for n in range(40) for k in ("a", "b")]
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    stream = env.from_collection(rows).assign_timestamps_and_watermarks(times).key_by("k")
    return stream.window(TumblingEventTimeWindows.of(timedelta(seconds=10))).aggregate(
        total=sum_("v")
    )


def lines(axes: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}


def test_windows_of_each_key(env: Env, tmp_path: Path) -> None:
    file = tmp_path / "figure.png"
    figure = windows(env).plot("window_end", "total", by="k", title="sums", save=file)
    (axes,) = figure.axes
    assert lines(axes) == {"a": [45, 145, 245, 345], "b": [45, 145, 245, 345]}
    assert axes.get_lines()[0].get_xdata()[0] == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == (
        "window_end",
        "total",
        "sums",
    )
    assert axes.get_legend().get_title().get_text() == "k"
    assert file.read_bytes().startswith(b"\x89PNG")


def test_bars_into_axes_of_ones_own(env: Env) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot()
    axes.set_xlabel("mine")
    assert windows(env).plot("window_end", "total", by="k", kind="bar", last=2, ax=axes) is figure
    assert [[bar.get_height() for bar in bars] for bars in axes.containers] == [[245, 345]] * 2
    assert [text.get_text() for text in axes.get_xticklabels()] == ["00:00:30", "00:00:40"]
    assert axes.get_xlabel() == "mine"


def test_a_stream_without_end(env: Env) -> None:
    numbers = env.from_source(NumberSequenceSource(0, 2**62)).map(lambda n: {"n": n, "half": n / 2})
    figure = numbers.plot("n", "half", last=5, timeout=timedelta(milliseconds=500))
    for line in figure.axes[0].get_lines():  # none, if nothing came in time
        xs = list(line.get_xdata())
        assert len(xs) <= 5
        assert list(line.get_ydata()) == [x / 2 for x in xs]


def test_a_failed_job_raises(env: Env) -> None:
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        env.from_collection([{"x": 1, "y": 0}]).map(lambda r: r["x"] / r["y"]).plot("x", "y")


def test_records_without_such_columns(env: Env) -> None:
    stream = env.from_collection(pa.table({"k": ["a"], "total": [1]}))
    with pytest.raises(ConfigurationError, match=r"y='n' is no column .* it has k, total"):
        stream.plot("k", "n")
    assert [one.name for one in env._transformations] == ["Source: Collection"], "nothing ran"
    objects = env.from_collection([{"x": 1, "y": "much"}])
    with pytest.raises(ConfigurationError, match="no column 'z'; it has x, y"):
        objects.plot("x", "z")
    with pytest.raises(ConfigurationError, match=r"'y' holds 'much' \(str\)"):
        objects.plot("x", "y")
    for wrong in ({"kind": "pie"}, {"last": 0}, {"by": ""}, {"timeout": 3}):
        with pytest.raises(ConfigurationError, match=r"^plot: "):
            stream.plot("k", "total", **wrong)


def test_without_matplotlib_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["matplotlib"] = None
import strom
env = strom.StreamExecutionEnvironment.get_execution_environment()
stream = env.from_collection([{"x": 1, "y": 2}])
try:
    stream.plot("x", "y")
except strom.ConfigurationError as error:
    print(error)
stream.show()
print(len(stream._repr_html_()) > 500, "IPython" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install 'strom[notebook]'" in done.stdout
    assert "│ 1 │ 2 │" in done.stdout
    assert done.stdout.endswith("True False\n")


# --- points ----------------------------------------------------------------------------------


def points(records: list[Any], **of: Any) -> dict[Any, Any]:
    found = Points(Plotted("x", "y", **of))
    found.add(records)
    return found.series()


def test_one_point_for_each_x() -> None:
    records = [{"x": 2, "y": 1}, {"x": 1, "y": Decimal("2.5")}, {"x": 2, "y": 3}]
    assert points(records) == {None: ([1, 2], [2.5, 3.0])}


def test_a_changelog_replaces_and_removes() -> None:
    def row(kind: RowKind, x: int, y: int) -> Row:
        return Row.of_kind(kind, x=x, y=y)

    records = [
        row(RowKind.INSERT, 1, 10),
        row(RowKind.INSERT, 2, 20),
        row(RowKind.UPDATE_BEFORE, 1, 10),
        row(RowKind.UPDATE_AFTER, 1, 11),
        row(RowKind.DELETE, 2, 20),
        row(RowKind.DELETE, 7, 0),
    ]
    assert points(records) == {None: ([1], [11.0])}


def test_what_has_no_place_and_what_has_no_height() -> None:
    nowhere = [{"x": x, "y": 1} for x in (None, math.nan, math.inf, Decimal("nan"))]
    (xs, ys) = points([*nowhere, {"x": 1, "y": None}, {"x": 2, "y": 10**400}])[None]
    assert xs == [1, 2]
    assert all(math.isnan(y) for y in ys)


def test_texts_stand_as_they_came() -> None:
    assert points([{"x": "b", "y": 1}, {"x": "a", "y": 2}])[None][0] == ["b", "a"]
    days = [date(2026, 1, 2), datetime(2026, 1, 1)]
    drawing = Drawing(Points(Plotted("x", "y", kind="bar")))
    drawing._points.add([{"x": x, "y": 1} for x in days])
    drawing.show()
    shown = [text.get_text() for text in drawing.figure.axes[0].get_xticklabels()]
    assert shown == ["2026-01-02", "2026-01-01 00:00:00"], "of types that have no common order"


def test_the_last_of_each_series() -> None:
    records = [{"x": x, "y": x, "k": k} for x in (5, 3, 9, 1) for k in "ab"]
    assert points(records, by="k", last=2) == {k: ([5, 9], [5.0, 9.0]) for k in "ab"}


def test_more_series_than_can_be_told_apart() -> None:
    found = Points(Plotted("x", "y", by="k"))
    found.add([{"x": 1, "y": 1, "k": k} for k in range(MOST_SERIES + 5)])
    assert len(found.series()) == MOST_SERIES
    drawing = Drawing(found)
    drawing.show()
    assert "(5 more not drawn)" in drawing.figure.axes[0].get_legend().get_title().get_text()


@pytest.mark.parametrize("kind", ["line", "bar"])
def test_names_are_no_formulas(kind: Any) -> None:
    """matplotlib would take what is between dollars for one, and fail where it is none."""
    found = Points(Plotted("$x_{$", "y\\bad$$", "$k^$", kind))
    records = [{"$x_{$": f"$\\frac{n}$", "y\\bad$$": n, "$k^$": "_$^$"} for n in range(3)]
    found.add(records)
    drawing = Drawing(found)
    for _ in range(2):
        drawing.show()
        drawing.figure.canvas.draw()
    axes = drawing.figure.axes[0]
    assert len(axes.get_lines() or axes.containers) == 1, "drawn anew, not once more"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [r" _\$^\$"]


def test_labels_have_the_day_where_there_are_several() -> None:
    one, other = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 3)
    assert labels([one, one]) == ["03:04:05", "03:04:05"]
    assert labels([one, other]) == ["01-02 03:04", "01-03 00:00"]
    assert labels([1, "a$"]) == ["1", r"a\$"]
