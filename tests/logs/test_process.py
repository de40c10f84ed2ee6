"""The logs of the jobs of one process: what is written, for whom, and what stays as it was."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from strom.core.logging_config import LoggingConfig
from strom.logs import files, process
from strom.logs.process import JobLog, close_log, flush_logs, open_log
from strom.logs.records import encoded, entry_of, said_by
from strom.logs.scope import LogScope, bind, tells_scope

SCOPE = LogScope("j", "shop", "chain", "orders", "id", 1, 3)


class Node:
    log_scope = SCOPE

    @tells_scope
    def call(self, function: Any) -> Any:
        return function()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "logs_root", lambda: tmp_path)
    return tmp_path


@contextmanager
def opened() -> Iterator[JobLog]:
    """Within the test: pytest has other streams for fixtures."""
    log = open_log(LoggingConfig(), LogScope("j", "shop"), "program", alone=False)
    assert log is not None
    try:
        yield log
    finally:
        close_log(log)


def lines(root: Path, job: str = "j") -> list[dict[str, Any]]:
    flush_logs()
    return [
        json.loads(line)
        for file in files.files_of(root / job)
        for line in file.read_bytes().splitlines()
    ]


def say(function: Any) -> None:
    Node().call(function)


def test_a_line_says_who_where_and_when(root: Path) -> None:
    with opened():
        before = time.time()
        say(
            lambda: logging.getLogger("mine").warning(
                "%s late", 5, extra={"shop": "b", "token": "t"}
            )
        )
        (line,) = lines(root)
        assert line.pop("time") > time.strftime("%Y-%m-%dT%H:%M", time.gmtime(before))
        assert line.pop("place").startswith(__file__)
        assert line.pop("pid") > 0
        assert line.pop("node")
        assert line == {
            "level": "WARNING",
            "logger": "mine",
            "message": "5 late",
            "job_id": "j",
            "job_name": "shop",
            "task": "chain",
            "operator": "orders",
            "operator_id": "id",
            "subtask": 1,
            "attempt": 3,
            "process": "program",
            "extra": {"shop": "b", "token": "***"},
        }


def test_prints_are_lines_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened():
        say(lambda: print("seen", 7))
        say(lambda: print("oh", file=sys.stderr))
        out, err = lines(root)
        assert (out["logger"], out["level"], out["message"]) == ("stdout", "INFO", "seen 7")
        assert (err["logger"], err["level"], err["message"]) == ("stderr", "WARNING", "oh")
        assert out["operator"] == "orders"
        assert out["place"].startswith(__file__)


def test_lines_of_no_job_are_left_alone(root: Path) -> None:
    with opened():
        print("mine")
        logging.getLogger("mine").warning("mine")
        assert lines(root) == []


def test_jobs_of_one_process_do_not_mix(root: Path) -> None:
    with opened():
        other = open_log(LoggingConfig(), LogScope("k", "two"), "program", alone=False)
        say(lambda: print("of j"))
        bind(LogScope("k", "two"))
        try:
            print("of k")
        finally:
            bind(None)
        close_log(other)
        assert [line["message"] for line in lines(root)] == ["of j"]
        assert [line["message"] for line in lines(root, "k")] == ["of k"]


def test_levels_are_set_and_given_back(root: Path) -> None:
    config = LoggingConfig(level="warn", levels={"mine.deep": "DEBUG"})
    before = logging.getLogger().level
    log = open_log(config, LogScope("j", "shop"), "program", alone=False)
    try:
        say(lambda: logging.getLogger("mine.deep.one").debug("deep"))
        say(lambda: logging.getLogger("mine").info("not said"))
        assert [line["message"] for line in lines(root)] == ["deep"]
    finally:
        close_log(log)
    assert logging.getLogger().level == before
    assert logging.getLogger("mine.deep").level == logging.NOTSET


def test_everything_is_as_it_was_when_the_job_is_over(root: Path) -> None:
    out, handlers = sys.stdout, list(logging.getLogger().handlers)
    log = open_log(LoggingConfig(), LogScope("j", "shop"), "program", alone=False)
    assert sys.stdout is not out
    close_log(log)
    close_log(log)
    assert sys.stdout is out
    assert logging.getLogger().handlers == handlers


def test_too_many_lines_are_counted_and_errors_never(root: Path) -> None:
    with opened():
        logger = logging.getLogger("mine")

        def flood() -> None:
            for n in range(1_000):
                logger.info("line %s", n)
            for n in range(300):
                logger.error("broken %s", n)

        say(flood)
        found = lines(root)
        info = [line for line in found if line["level"] == "INFO" and "suppressed" not in line]
        assert info[0]["message"] == "line 0"
        suppressed = sum(line.get("suppressed", 0) for line in found)
        assert len(info) + suppressed == 1_000
        assert suppressed > 0
        assert sum(line["level"] == "ERROR" for line in found) == 300
        (first, *_) = [line["message"] for line in found if "suppressed" in line]
        assert first == f"... {suppressed} more suppressed, the first: line {len(info)}"


def test_the_count_is_told_without_another_line(root: Path) -> None:
    with opened():
        say(lambda: [print("x") for _ in range(500)])
        deadline = time.monotonic() + 10
        path = files.files_of(root / "j")[0]
        while b"more suppressed" not in path.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_errors_show_the_users_frames_first(root: Path) -> None:
    with opened():

        def broken() -> None:
            try:
                json.loads("{")
            except ValueError:
                logging.getLogger("mine").exception("no JSON")

        say(broken)
        (line,) = lines(root)
        frames = [row for row in line["error"].splitlines() if row.startswith("  File ")]
        assert __file__ in frames[0]
        assert "JSONDecodeError" in line["error"]


def test_secrets_are_hidden(root: Path) -> None:
    with opened():
        logger = logging.getLogger("mine")
        say(lambda: logger.info("login password=%s", "hunter2"))
        say(lambda: print('{"api_key": "abc def", "n": 1}'))
        assert [line["message"] for line in lines(root)] == [
            "login password=***",
            '{"api_key": "***", "n": 1}',
        ]


def test_odd_lines_do_no_harm(root: Path) -> None:
    with opened():

        class Unable:
            def __str__(self) -> str:
                raise RuntimeError("no text")

            __repr__ = __str__

        logger = logging.getLogger("mine")
        say(lambda: logger.info("x", extra={"it": Unable()}))
        say(lambda: logger.info("\x1b[31m \u20ac"))
        say(lambda: logger.info("y" * 100_000))
        messages = [line["message"] for line in lines(root)]
        assert messages[1] == "\x1b[31m \u20ac"
        assert len(messages[2]) < 20_000
    torn = entry_of(logging.makeLogRecord({"msg": "\udc80"}), SCOPE, "task")
    assert json.loads(encoded(torn))["message"] == "\\udc80"
    unable = logging.makeLogRecord({"msg": "%d", "args": ("no number",)})
    assert said_by(unable).startswith("'%d' % ('no number',) (TypeError")


def test_a_handler_of_ones_own_that_prints_does_not_double(root: Path) -> None:
    with opened():
        logger = logging.getLogger("mine.own")
        handler = logging.StreamHandler(sys.stderr)
        logger.addHandler(handler)
        try:
            say(lambda: logger.warning("once"))
        finally:
            logger.removeHandler(handler)
        assert [line["message"] for line in lines(root)] == ["once"]


def test_children_that_are_forked_say_their_lines_too(root: Path) -> None:
    with opened():
        logger, stop = logging.getLogger("forked"), threading.Event()
        logger.propagate = False  # pytest's handlers do not take forks
        logger.addHandler(process._process._handler)

        def busy() -> None:
            while not stop.is_set():
                say(lambda: logger.info("busy"))

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            children = []
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    say(lambda: logger.info("child"))
                    os._exit(0)
                children.append(pid)
            deadline = time.monotonic() + 60
            for pid in children:
                while os.waitpid(pid, os.WNOHANG) == (0, 0):
                    if time.monotonic() > deadline:
                        for one in children:
                            os.kill(one, signal.SIGKILL)
                        raise AssertionError("a child hangs")
                    time.sleep(0.01)
        finally:
            stop.set()
            thread.join()
            logger.removeHandler(process._process._handler)
        assert sum(line["message"] == "child" for line in lines(root)) == 5


def test_a_disk_that_is_full_is_said_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened() as log:

        def full(line: bytes) -> None:
            raise OSError(28, "No space left on device")

        said: list[str] = []
        monkeypatch.setattr(process, "_complain", said.append)
        monkeypatch.setattr(log._files, "write", full)
        for _ in range(3):
            say(lambda: print("x"))
        assert len(said) == 1
        assert "No space left" in said[0]
