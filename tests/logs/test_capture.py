"""What is printed goes where it went before, and line by line into the log."""

from __future__ import annotations

import copy
import io
import logging
import threading
from typing import Any

import pytest
from strom.logs.capture import LONGEST_LINE, CapturedStream


class Sink:
    def __init__(self, stream: Any = None) -> None:
        self.out = io.StringIO() if stream is None else stream
        self.lines: list[str] = []
        self.places: list[tuple[str, int]] = []
        self.stream: Any = CapturedStream("stdout", self.out, self.take)

    def take(self, name: str, line: str, frame: Any) -> None:
        assert name == "stdout"
        self.lines.append(line)
        self.places.append((frame.f_code.co_name, frame.f_lineno))


def test_pieces_become_lines_and_the_output_is_what_it_was() -> None:
    sink = Sink()
    print("a", 1, file=sink.stream)
    print("no", end=" ", file=sink.stream)
    print("end", end="", file=sink.stream, flush=True)
    print(file=sink.stream)
    sink.stream.write("two\nlines\n\nrest")
    assert sink.lines == ["a 1", "no end", "two", "lines"]
    sink.stream.close_lines()
    assert sink.lines[-1] == "rest"
    assert sink.out.getvalue() == "a 1\nno end\ntwo\nlines\n\nrest"


def test_the_place_is_the_caller_of_print() -> None:
    sink = Sink()
    print("x", file=sink.stream)
    sink.stream.writelines(["y\n"])
    assert {name for name, _ in sink.places} == {"test_the_place_is_the_caller_of_print"}


def test_threads_do_not_mix() -> None:
    sink, barrier = Sink(), threading.Barrier(4)

    def work(word: str) -> None:
        for _ in range(50):
            for letter in word:
                sink.stream.write(letter)
            sink.stream.write("\n")
            if barrier.n_waiting == 0:
                continue
        barrier.wait()

    threads = [threading.Thread(target=work, args=(w,)) for w in ("abcd", "efgh", "ijkl", "mnop")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sink.lines) == sorted(["abcd", "efgh", "ijkl", "mnop"] * 50)


def test_a_bar_of_progress_is_its_last_state() -> None:
    sink = Sink()
    for percent in range(0, 101, 10):
        sink.stream.write(f"\r{percent} %")
    sink.stream.write("\n")
    sink.stream.write("dos\r\n")
    assert sink.lines == ["100 %", "dos"]


def test_long_lines_come_in_pieces_and_nothing_piles_up() -> None:
    sink = Sink()
    sink.stream.write("x" * (2 * LONGEST_LINE + 5))
    assert [len(line) for line in sink.lines] == [LONGEST_LINE] * 2
    sink.stream.write("\n")
    assert len(sink.lines[-1]) == 5


def test_what_logging_writes_is_no_print() -> None:
    sink = Sink()
    logger = logging.Logger("own")
    logger.addHandler(logging.StreamHandler(sink.stream))
    logger.warning("hello")
    assert sink.out.getvalue() == "hello\n"
    assert sink.lines == []


def test_it_stands_for_the_stream() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), "latin-1", write_through=True)
    sink = Sink(raw)
    assert sink.stream.encoding == "latin-1"
    assert not sink.stream.isatty()
    sink.stream.buffer.write(b"bytes\n")
    sink.stream.write("\u00e9\n")
    assert raw.buffer.getvalue() == b"bytes\n\xe9\n"  # type: ignore[attr-defined]
    with pytest.raises(UnicodeEncodeError):
        sink.stream.write("\u20ac\n")
    with pytest.raises(TypeError):
        sink.stream.write(b"no text")
    assert sink.lines == ["\u00e9"]
    assert copy.copy(sink.stream).encoding == "latin-1"
