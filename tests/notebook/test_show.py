"""`stream.show()`, on the local host and a played one."""

from __future__ import annotations

import io
import threading
from collections import namedtuple
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from strom import (
    CollectSink,
    ConfigurationError,
    JobCancelledError,
    JobConfig,
    JobFailedError,
    Row,
    RowKind,
    StreamExecutionEnvironment,
    Types,
    sum_,
)
from strom.connectors.datagen import NumberSequenceSource
from strom.core.config import CheckpointConfig
from strom.notebook.display import REDRAW_S, Terminal
from strom.notebook.incoming import MOST_WAITING, Incoming
from strom.notebook.records import Records
from strom.notebook.showing import gather

Env = StreamExecutionEnvironment


@pytest.fixture
def env() -> Iterator[Env]:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        yield env


def test_columns_of_rows(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "price": 1.5}, {"name": "b\x1b[1m", "price": 22.25}]
    columns = env.from_collection(
        rows, type_info=Types.ROW_NAMED(["name", "price"], [Types.STRING(), Types.DOUBLE()])
    )
    assert columns.show() is None
    assert capsys.readouterr().out == (
        "┌──────────┬───────┐\n"
        "│ name     │ price │\n"
        "├──────────┼───────┤\n"
        "│ a        │   1.5 │\n"
        "│ b\\x1b[1m │ 22.25 │\n"
        "└──────────┴───────┘\n"
        "2 records\n"
    )


def test_values(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    env.from_collection([1, None, "x" * 100, b"y"]).show(truncate=5)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip("│ ") for line in lines[3:-2]] == ["1", "None", "xxxx…", "b'y'"]


def test_a_changelog(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    rows = env.from_collection([{"k": "a", "v": 1}, {"k": "a", "v": 2}])
    rows.map(lambda row: row).key_by("k").aggregate(total=sum_("v")).show()
    assert "│ op │ k │ total │" in capsys.readouterr().out
    updates = [Row.of_kind(kind, 1) for kind in RowKind]
    env.from_collection(updates).map(lambda row: row).show()
    shown = capsys.readouterr().out
    assert [line[2:4] for line in shown.splitlines()[3:7]] == ["+I", "-U", "+U", "-D"]


def test_nothing(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    columns = env.from_collection([], type_info=Types.ROW_NAMED(["n"], [Types.LONG()]))
    columns.show()
    assert capsys.readouterr().out.splitlines()[1::2] == ["│ n │", "└───┘"]
    env.from_collection([1]).filter(lambda n: False).show()
    assert "│ value │" in (shown := capsys.readouterr().out)
    assert shown.endswith("no records\n")


def test_a_stream_without_end_is_cancelled(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    env.from_source(NumberSequenceSource(0, 2**62)).show(3)
    assert capsys.readouterr().out.endswith("the first 3 records\n")


def test_what_comes_in_time(env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = env.from_source(NumberSequenceSource(0, 2**62))
    numbers.filter(lambda n: n < 0).show(timeout=timedelta(milliseconds=300))
    assert capsys.readouterr().out.endswith("no records so far\n")


def test_a_failed_job_shows_what_came_and_raises(
    env: Env, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(n: int) -> int:
        if n == 2:
            raise KeyError("two")
        return n

    env.set_parallelism(1)
    with pytest.raises(JobFailedError, match="two"):
        env.from_collection([1, 2]).map(fails).show()
    assert "records so far" in capsys.readouterr().out


def test_it_leaves_the_job_being_written_alone(
    env: Env, capsys: pytest.CaptureFixture[str]
) -> None:
    source = env.from_collection([1, 2])
    source.print("printed")
    looked_at = source.map(lambda n: n * 10).name("looked at")
    looked_at.show()
    assert "printed" not in capsys.readouterr().out, "no other sink runs"
    names = [one.name for one in env._transformations]
    assert names == ["Sink: Print"], "what was looked at alone runs no more"
    env.execute()
    assert capsys.readouterr().out == "printed> 1\nprinted> 2\n"
    looked_at.show()
    assert "│    20 │" in capsys.readouterr().out, "it can be looked at again"
    assert looked_at.execute_and_collect(limit=2) == [10, 20]


def test_its_job_takes_no_checkpoints_and_does_not_restart(tmp_path: Any) -> None:
    """Else records would come with the next checkpoint, or twice."""
    checkpoint = CheckpointConfig(timedelta(hours=1), storage=str(tmp_path))
    submitted: list[Any] = []

    class Host:
        def submit(self, graph: Any, job_name: str) -> Any:
            submitted.append((graph, job_name))
            return SimpleNamespace(
                cancel=lambda: None,
                published=lambda operator: iter([[1, 2]]),
                get_job_execution_result=lambda: None,
            )

    config = JobConfig(checkpoint=checkpoint, restore_from=str(tmp_path / "savepoint"))
    env = StreamExecutionEnvironment.get_execution_environment(config, Host())
    env.from_collection([1]).show(job_name="a look")
    ((graph, name),) = submitted
    assert name == "a look"
    assert graph.config.checkpoint == CheckpointConfig()
    assert not graph.config.effective_restart.__dict__
    assert graph.config.restore_from is None
    assert graph.config.attached
    assert isinstance(graph.vertices[-1].operators[-1].spec.sink, CollectSink)
    assert env.get_job_config().restore_from == config.restore_from


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": "3"}, {"truncate": -1}, {"truncate": None}, {"timeout": 5}],
    ids=str,
)
def test_settings_that_mean_nothing(env: Env, options: dict[str, Any]) -> None:
    stream = env.from_collection([1])
    with pytest.raises(ConfigurationError, match=r"^show: "):
        stream.show(**options)
    assert [one.name for one in env._transformations] == ["Source: Collection"]


# --- parts -----------------------------------------------------------------------------------


def test_hostile_records_as_html() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    records = Records(None, 20, 30)
    pair = namedtuple("pair", ["<left>", "right"], rename=True)
    records.add([{"<i>": "<script>"}, {"<i>": Odd()}, {"<i>": "x" * 10**6}, pair(1, 2)])
    html = records.html()
    assert "<script>" not in html
    assert "<i>" not in html
    assert "&lt;script&gt;" in html
    assert "Odd: its text raises RuntimeError" not in html, "it is cut"
    assert "&lt;Odd: its text raises Runtime…" in html
    assert len(html) < 8_000
    assert "4 records so far" in html


class Played:
    """Results that come when the test says so."""

    def __init__(self) -> None:
        self.client = self
        self.closed = False
        self._turn = threading.Condition()
        self._records: list[Any] = []
        self._end: BaseException | None = None

    def give(self, *records: Any, end: BaseException | None = None) -> None:
        with self._turn:
            self._records.extend(records)
            self._end = end or self._end
            self._turn.notify_all()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._turn:
            self._turn.wait_for(lambda: self._records or self._end)
            if self._records:
                return self._records.pop(0)
            assert self._end is not None
            raise self._end

    def cancel(self) -> None:
        self.give(end=JobCancelledError("cancelled"))

    def close(self) -> None:
        self.closed = True


def test_an_interrupt_cancels_the_job() -> None:
    played = Played()
    played.give(1)
    incoming = Incoming(played)
    assert incoming.take() == [1]
    assert incoming.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None) is None
    assert played.closed
    assert isinstance(played._end, JobCancelledError)
    incoming.check()  # its own cancelling is no error


def test_no_more_is_read_ahead_than_there_is_room_for() -> None:
    class Endless(Played):
        read = 0

        def __next__(self) -> int:
            self.read += 1
            return self.read

    endless = Endless()
    with Incoming(endless) as incoming:
        while len(incoming._fresh) < MOST_WAITING:
            incoming._thread.join(0.01)
        assert len(incoming.take()) == MOST_WAITING
        while len(incoming._fresh) < MOST_WAITING:
            incoming._thread.join(0.01)
    assert endless.read == 2 * MOST_WAITING
    assert endless.closed


def test_a_job_that_another_cancels_is_an_error() -> None:
    played = Played()
    with Incoming(played) as incoming:
        played.cancel()
        assert incoming.take() == []
        assert incoming.over
        assert not incoming.ended
    with pytest.raises(JobCancelledError):
        incoming.check()


def test_a_terminal_is_redrawn() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=30, _environ={})
    records = Records(["name"], 3, 60)
    with Terminal(console) as place:
        for name in ("[red]a", "b" * 50):
            records.add([{"name": name}])
            place.draw(records.html, records.text)
    shown = out.getvalue()
    assert "1 record so far" in shown
    assert "2 records so far" in shown
    assert "[red]a" in shown
    assert "b" * 25 + "…" in shown, "as wide as the terminal"


def test_drawn_at_once_and_then_now_and_again() -> None:
    """Ten bursts at 0.1, 0.2 ... 1.0 s, and the end."""

    class Bursts:
        over = False

        def __init__(self) -> None:
            self.now = 0.0
            self.left = list(range(1, 11))

        def take(self, timeout_s: float | None = None) -> list[int]:
            come_s = self.left[0] / 10 if self.left else self.now
            if timeout_s is not None and self.now + timeout_s < come_s:
                self.now += timeout_s
                return []
            self.now = max(self.now, come_s)
            self.over = not self.left
            return [self.left.pop(0)] if self.left else []

    played: Any = Bursts()
    seen: list[int] = []
    drawings: list[float] = []
    gather(played, seen.extend, lambda: drawings.append(played.now), clock=lambda: played.now)
    assert seen == list(range(1, 11))
    assert drawings[0] == pytest.approx(0.1)
    assert min(b - a for a, b in pairwise(drawings)) >= REDRAW_S - 1e-9
    assert 4 <= len(drawings) <= 6
