"""Files of several processes, read in the order of time, in pages, while they are written."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from strom.core.errors import ConfigurationError
from strom.logs import files, reading
from strom.logs.files import LogFiles, LogFolder, files_of, name_of, sweep
from strom.logs.filters import LogFilter, moment
from strom.logs.reading import ends_of, merged, read_folder

ALL = LogFilter()


def entry(time: int, message: str, **more: Any) -> dict[str, Any]:
    when = f"2030-01-01T00:00:{time // 1000:02}.{time % 1000:03}000Z"
    return {"time": when, "level": "INFO", "logger": "x", "message": message, **more}


def line(*args: Any, **more: Any) -> bytes:
    return json.dumps(entry(*args, **more)).encode() + b"\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "logs_root", lambda: tmp_path / "root")
    made = LogFolder("j", None)
    made.close()
    return made.path


def put(folder: Path, name: str, *lines: bytes) -> None:
    with open(folder / f"{name}.jsonl", "ab") as file:
        file.write(b"".join(lines))


def pages(folder: Path, limit: int, wanted: LogFilter = ALL) -> list[list[str]]:
    found, cursor, more = [], {}, True
    while more:
        page = read_folder(folder, next(iter(cursor.values()), {}), wanted)
        assert page is not None
        entries, cursor, more = merged([page], limit)
        found.append([e["message"] for e in entries])
    return found


def flat(found: list[list[str]]) -> list[str]:
    return [one for page in found for one in page]


def test_lines_of_several_files_come_in_order_in_pages(folder: Path) -> None:
    put(folder, "task-1-1.000001", line(1, "a"), line(4, "d"), line(5, "e"))
    put(folder, "task-2-1.000001", line(2, "b"), line(3, "c"), line(6, "f"))
    assert pages(folder, 100) == [list("abcdef")]
    assert pages(folder, 4) == [list("abcd"), list("ef")]
    assert pages(folder, 1) == [[one] for one in "abcdef"]


def test_what_comes_later_is_read_from_there(folder: Path) -> None:
    put(folder, "task-1-1.000001", line(1, "a"))
    first = read_folder(folder, {}, ALL)
    assert first is not None
    _, cursor, more = merged([first], 10)
    assert not more
    put(folder, "task-1-1.000001", line(2, "b")[:-5])
    torn = read_folder(folder, cursor[first.folder], ALL)
    assert torn is not None
    assert merged([torn], 10)[0] == []
    assert not merged([torn], 10)[2], "a piece of a line is not more to come"
    put(folder, "task-1-1.000001", line(2, "b")[-5:])
    put(folder, "task-1-1.000002", line(3, "c"))
    second = read_folder(folder, cursor[first.folder], ALL)
    assert second is not None
    assert [e["message"] for e in merged([second], 10)[0]] == ["b", "c"]


def test_each_line_once_in_any_pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    monkeypatch.setattr(reading, "MOST_BYTES", 1)
    monkeypatch.setattr(reading, "LEAST_CHUNK", rng.choice((150, 400, 3000)))
    times = sorted(rng.randrange(50_000) for _ in range(300))
    for n, time in enumerate(times):
        junk = rng.choice((b"", b"", b"", b"{torn\n", b"[]\n"))
        put(folder, f"task-{rng.randrange(4)}-1.000001", junk, line(time, str(n)))
    found = flat(pages(folder, rng.choice((1, 7, 1000))))
    assert sorted(found, key=int) == [str(n) for n in range(300)]
    assert [times[int(one)] for one in found] == times


def test_lines_that_threads_swapped_are_not_lost(folder: Path) -> None:
    put(folder, "task-1-1.000001", line(5, "a"), line(4, "b"), line(6, "c"))
    put(folder, "task-2-1.000001", line(5, "x"))
    assert sorted(flat(pages(folder, 2))) == ["a", "b", "c", "x"]


def test_filters(folder: Path) -> None:
    put(
        folder,
        "task-1-1.000001",
        line(1, "one", operator="orders", subtask=0, attempt=0),
        line(2, "Two", operator="orders", subtask=1, attempt=1, error="KeyError: 'k'"),
        line(3, "three", task="orders -> sink", level="ERROR"),
        line(4, "four", level="ODD"),
    )

    def found(**wanted: Any) -> list[str]:
        return flat(pages(folder, 10, LogFilter(**wanted)))

    assert found(operator="orders") == ["one", "Two"]
    assert found(operator="orders -> sink") == ["three"]
    assert found(subtask=0) == ["one"]
    assert found(attempt=1) == ["Two"]
    assert found(level="warn") == ["three", "four"]
    assert found(since="2030-01-01T00:00:00.002000Z", until="2030-01-01T00:00:00.004000Z") == [
        "Two",
        "three",
    ]
    assert found(text="keyerror") == ["Two"]
    assert found(text="two") == ["Two"]
    with pytest.raises(ConfigurationError, match="LOUD"):
        LogFilter(level="LOUD")


def test_the_end_of_each_process(folder: Path) -> None:
    put(folder, "task-1-1.000001", *[line(n, f"a{n}") for n in range(100)])
    put(folder, "task-1-1.000002", line(100, "a100"))
    put(folder, "task-2-1.000001", line(101, "b"))
    size = len(line(100, "a100"))
    page = read_folder(folder, ends_of(folder, 3 * size), ALL)
    assert page is not None
    assert [e["message"] for e in merged([page], 10)[0]] == ["a98", "a99", "a100", "b"]
    nothing = read_folder(folder, ends_of(folder, 0), ALL)
    assert nothing is not None
    assert nothing.lines == []


def test_files_are_bounded_and_the_last_ones_stay(folder: Path) -> None:
    written = LogFiles(folder, "task", 4096, 2)
    lines = [line(n, "x" * 200 + str(n)) for n in range(100)]
    for one in lines:
        written.write(one)
    written.close()
    kept = files_of(folder)
    assert len(kept) == 2
    assert all(file.stat().st_size <= 4096 for file in kept)
    found = flat(pages(folder, 1000))
    assert found == ["x" * 200 + str(n) for n in range(100 - len(found), 100)]
    assert oct(kept[0].stat().st_mode & 0o777) == "0o600"


DAY = timedelta(days=1)


def days_later(monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.time.time()
    monkeypatch.setattr(files.time, "time", lambda: real + 2 * 86_400)


def test_jobs_that_are_long_over_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "task-1-1.000001", line(1, "a"))
    sweep(None, DAY)
    assert folder.exists()
    days_later(monkeypatch)
    foreign = folder / "notes.txt"
    foreign.touch()
    sweep(None, DAY)
    assert foreign.exists(), "who knows what else is there"
    foreign.unlink()
    sweep(None, DAY)
    assert not folder.exists()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_job_that_says_nothing_for_long_keeps_its_log(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    directory = str(tmp_path / "disk") if elsewhere else None
    first, second = LogFolder("k", directory), LogFolder("k", directory)
    written = LogFiles(first.path, "task", 4096, 2, first.keep)
    written.write(line(1, "a"))
    days_later(monkeypatch)
    sweep(directory, DAY)
    written.write(line(2, "b"))
    first.close()
    sweep(directory, DAY)
    assert pages(first.path, 10) == [["a", "b"]], "another process has it"
    second.close()
    sweep(directory, DAY)
    assert not first.path.exists()
    written.close()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, tries = files._locked, []

    def late(where: Path, *how: Any, **more: Any) -> list[int]:
        tries.append(where)
        if len(tries) == 1:
            (where / files.ID).unlink()
            where.rmdir()
        return locked(where, *how, **more)

    monkeypatch.setattr(files, "_locked", late)
    made = LogFolder("k", None)
    monkeypatch.undo()
    assert len(tries) == 2
    made.close()


def test_another_directory_is_found_under_the_usual_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    made = LogFolder("k", str(disk))
    made.close()
    linked = made.path
    put(linked, "task-1-1.000001", line(1, "a"))
    assert (disk / "k" / "task-1-1.000001.jsonl").exists()
    (disk / "mine").mkdir()
    linked.unlink()
    sweep(str(disk), DAY)
    assert pages(linked, 10) == [["a"]], "the temporary folder was cleaned"
    linked.unlink()
    days_later(monkeypatch)
    sweep(str(disk), DAY)
    assert [one.name for one in disk.iterdir()] == ["mine"]
    assert not linked.is_symlink()


def test_what_is_cleaned_away_a_process_that_writes_makes_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LogFolder("k", str(tmp_path / "disk"))
    name = name_of(made.path)
    written = LogFiles(made.path, "task", 4096, 2, made.keep)
    written.write(line(1, "a"))
    (made.path / files.ID).unlink()
    made.path.unlink()
    monkeypatch.setattr(files, "KEEP_S", 0.0)
    written.write(line(2, "b"))
    assert name_of(made.path) == name, "cursors of readers hold"
    assert pages(made.path, 10) == [["a", "b"]]
    for file in made.path.iterdir():
        file.unlink()
    (tmp_path / "disk" / "k").rmdir()
    written.write(line(3, "c"))
    assert pages(made.path, 10)[-1] == ["c"]
    written.close()
    made.close()


def test_a_file_that_is_gone_meanwhile_harms_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 2)
    live = LogFiles(folder, "task", 4096, 2)
    live.write(line(0, "quiet"))
    for n in range(3):
        put(folder, f"task-{n}-1.000001", line(n, str(n)))
    real = files_of(folder)
    gone = [*real, folder / "task-9-9.000001.jsonl"]
    for module in (files, reading):
        monkeypatch.setattr(module, "files_of", lambda folder: gone)
    assert set(ends_of(folder, 10)) == {file.name for file in real}
    LogFolder("j", None).close()
    monkeypatch.undo()
    left = [file.name for file in folder.glob("*.jsonl")]
    assert len(left) == 3, "of the two that were too many one was written"
    assert any(name not in {f"task-{n}-1.000001.jsonl" for n in range(3)} for name in left)
    live.close()


def test_moments() -> None:
    now = datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert moment("15m", now) == "2030-01-01T11:45:00.000000Z"
    assert moment("1.5h", now) == "2030-01-01T10:30:00.000000Z"
    assert moment("2030-01-01T12:00", now) == "2030-01-01T12:00:00.000000Z"
    assert moment("2030-01-01T12:00+02:00", now) == "2030-01-01T10:00:00.000000Z"
    for wrong in ("", "soon", "m", "-5m"):
        with pytest.raises(ConfigurationError):
            moment(wrong, now)
