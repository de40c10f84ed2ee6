"""What cannot travel is refused in one sentence, and failures read well: on the local host. The
same programs run on Ray in `test_ray_messages.py`."""

from __future__ import annotations

import datetime
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
import zoneinfo
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import strom
from chaos_kit import Always, config, environment, failure, gather, until
from odd_programs import MOST, PROGRAMS, OddSource, Unreadable, a_lock, across, numbers
from strom.core.errors import OperatorError
from strom.engine.exchange.pickling import is_plain, opened, parcel


def said_by(text: str) -> str:
    """What follows the job's name."""
    return text.partition(" failed: ")[2]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_sentence(program: str) -> None:
    make, pattern = PROGRAMS[program]
    text = failure(make(environment(config())))
    assert re.match(pattern, said_by(text)), text[:3000]
    assert len(text) < MOST


@pytest.mark.parametrize("program", ["a lock for the client", "a lock for another task"])
def test_with_checkpoints_too(program: str) -> None:
    make, _ = PROGRAMS[program]
    text = failure(make(environment(config(interval_ms=2, restart=strom.NoRestart()))))
    assert re.match(r"operator '(Sink: Collect|it)', subtask \d: ", said_by(text))
    assert "_thread.lock" in text


def test_a_record_the_client_cannot_read_is_its_error() -> None:
    with pytest.raises(strom.SerializationError, match="published records cannot be read"):
        gather(numbers(environment(config())).map(Unreadable))


def test_the_state_of_an_enumerator_that_does_not_pickle() -> None:
    env = environment(config(interval_ms=2, restart=strom.NoRestart()))
    text = failure(env.from_source(OddSource(threading.Lock, True), source_name="odd source"))
    assert "operator 'odd source': the snapshot of its enumerator failed: TypeError" in text


def test_a_long_error_out_of_an_enumerators_snapshot_is_cut() -> None:
    def fail() -> None:
        raise ValueError("x" * 20_000_000)

    env = environment(config(interval_ms=2, restart=strom.NoRestart()))
    results = env.from_source(OddSource(fail, True), source_name="odd source").execute_and_collect()
    with pytest.raises(strom.JobFailedError, match="characters left out") as caught:
        list(results)
    assert len(str(caught.value)) < MOST
    assert len(results.client.metrics()["last_failure"]) < MOST


def test_odd_values_within_one_task_are_nobodys_business() -> None:
    """Between chained operators nothing travels, on Ray neither."""
    locks = numbers(environment(config())).map(a_lock).map(lambda lock: lock.locked())
    assert gather(locks) == [False] * 100


def test_odd_values_that_do_travel_arrive() -> None:
    class Here:
        """Defined in a function: cloudpickle can, pickle cannot."""

    found = gather(across(numbers(environment(config())).map(lambda n: (Here(), lambda: n))))
    assert found == [1] * 100
    functions = gather(numbers(environment(config())).map(lambda n: lambda: n))
    assert sorted(f() for f in functions) == list(range(100))


class Zone(datetime.tzinfo):
    """A time zone that does not travel."""

    def __reduce__(self) -> Any:
        raise TypeError("not this zone")

    def utcoffset(self, when: Any) -> Any:
        return timedelta(0)


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2026, 1, 1, tzinfo=Zone()),
        [{"deep": (1, {2: [threading.Lock()]})}],
        {threading.Lock(): 1},
        frozenset([threading.Lock()]),
        strom.Row(a=1, b=threading.Lock()),
        [[[[[[[[[[threading.Lock()]]]]]]]]]],
    ],
    ids=["zone", "dict", "key", "set", "row", "deep"],
)
def test_plain_containers_hide_nothing(value: Any) -> None:
    assert not is_plain([1, value])
    with pytest.raises(strom.SerializationError, match="cannot be sent"):
        parcel([1, value], "record", "another task")


def test_what_is_plain_is_not_pickled() -> None:
    plain = [1, 2.5, None, "x", b"x", Decimal(1), datetime.datetime.now(datetime.UTC)]
    plain += [complex(1, 2), uuid.uuid4(), datetime.datetime.now(zoneinfo.ZoneInfo("UTC"))]
    plain += [(1, [2, {"a": {3}}]), strom.Row(a=1, b=(2,)), np.int64(3), range(3), timedelta(1)]
    assert is_plain(plain)
    assert parcel(plain, "record", "another task") is plain
    assert pickle.loads(pickle.dumps(plain)) == plain


def test_a_class_or_function_of_somebody_is_not_plain() -> None:
    """The coordinator passes values on, and may lack their modules."""
    for value in (Zone, strom.Row, print_nothing, len, int):
        assert is_plain([value]) == (value in (len, int)), value
        assert opened(parcel([value], "record", "another task"), "records") == [value]


def print_nothing() -> None:
    """A function of a module."""


def test_a_list_within_itself_travels() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert parcel(endless, "record", "another task") is endless


def test_counts_of_any_kind_of_number_are_reported() -> None:
    class Counting(strom.MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.counter = runtime_context.get_metrics_group().counter("odd")

        def map(self, value: Any) -> Any:
            self.counter.inc(np.int32(2))
            return value

    results = numbers(environment(config(parallelism=1))).map(Counting()).execute_and_collect()
    assert len(list(results)) == 100
    counters = [o["counters"] for o in results.client.metrics()["operators"] if o["counters"]]
    assert any(c.get("odd") == 200 and type(c["odd"]) is int for c in counters)


def test_the_users_own_line_comes_first() -> None:
    def outer(n: Any) -> Any:
        return inner(n)

    def inner(n: Any) -> Any:
        return [1, 2][n]

    text = said_by(failure(numbers(environment(config())).map(outer).name("it")))
    first, _, rest = text.partition("\n")
    line = inner.__code__.co_firstlineno + 1
    assert first.endswith(f"IndexError: list index out of range (at {__file__}:{line} in inner)")
    frames = re.findall(r'File "(.*)", line \d+, in (\w+)', rest)
    assert frames == [(__file__, "outer"), (__file__, "inner")]


def test_what_the_graph_refuses_hides_no_line_of_the_user() -> None:
    """No account of the pickler's comes before the user's own call."""
    lock = threading.Lock()
    env = environment(config())
    numbers(env).map(lambda n: (lock, n)).name("it").sink_to(strom.DiscardSink())
    with pytest.raises(strom.SerializationError) as caught:
        env.execute_async("never")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_raising_close_is_a_warning_with_operator_and_subtask(
    error: Any, parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Closing(strom.MapFunction):
        def map(self, value: Any) -> Any:
            return value

        def close(self) -> None:
            raise error("too late")

    env = environment(config(parallelism=parallelism))
    assert len(gather(numbers(env).map(Closing()).name("it"))) == 100
    for subtask in range(parallelism):
        assert f"operator 'it', subtask {subtask}: closing its function failed: " in caplog.text
    assert f"{error.__name__}: too late (at {__file__}:" in caplog.text


def test_an_operator_whose_own_close_raises_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever an operator lets through: the task says it."""
    from strom.operators.rows.functions import MapOperator

    monkeypatch.setattr(MapOperator, "close", lambda self: Always()())
    assert len(gather(numbers(environment(config())).map(lambda n: n).name("it"))) == 100
    assert "closing failed: operator 'it', subtask 0: RuntimeError: boom, always" in caplog.text


def test_a_long_error_is_cut_wherever_it_comes_from() -> None:
    error = OperatorError("it", 0, "x" * 1_012_000, "y" * 1_000_000)
    assert len(str(error)) < MOST
    assert "1000000 characters left out" in str(error)


INTERRUPTED = """
import sys, time, strom
from strom.connectors.datagen import DataGenSource

def slowly(n):
    open(sys.argv[1], "w").close()
    time.sleep(0.01)
    return n

env = strom.StreamExecutionEnvironment.get_execution_environment(host="local")
endless = DataGenSource(lambda start, n: list(range(start, start + n)), rate=1000)
env.from_source(endless).map(slowly).sink_to(strom.DiscardSink())
env.execute("endless")
"""


def test_control_c_interrupts_a_program_on_the_local_host(tmp_path: Path) -> None:
    script, running = tmp_path / "endless.py", tmp_path / "running"
    script.write_text(INTERRUPTED)
    started = [sys.executable, str(script), str(running)]
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as program:
        until(running.exists, "the function", 30.0)
        time.sleep(0.1)
        os.kill(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=80.0)
    assert program.returncode != 0
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_control_c_stops_a_simulation() -> None:
    """There functions run on the main thread: a KeyboardInterrupt may be a person's."""

    def interrupt(n: Any) -> Any:
        raise KeyboardInterrupt

    env = environment(config(), "simulator")
    numbers(env).map(interrupt).sink_to(strom.DiscardSink())
    with pytest.raises(KeyboardInterrupt):
        env.execute("interrupted")
