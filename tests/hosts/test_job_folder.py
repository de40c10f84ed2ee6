"""The folder of a job on a machine: made once, removed by the last process, whatever became of the
others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from chaos_kit import until
from strom import ConfigurationError
from strom.core.job_files import WORK, files_root
from strom.engine.hosts.job_folder import JobFolder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Filling:
    """Counts how often a folder is filled."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: Path) -> list[str]:
        self.times += 1
        time.sleep(0.02)
        (folder / WORK / "archive").mkdir(parents=True)
        (folder / "cache").mkdir()
        (folder / "cache" / "file").write_text("content")
        return ["archive"]


def left() -> list[str]:
    return sorted(entry.name for entry in files_root().iterdir())


def test_the_last_one_removes_it() -> None:
    fill = Filling()
    holders = [JobFolder("job") for _ in range(8)]
    threads = [threading.Thread(target=holder.enter, args=(fill,)) for holder in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fill.times == 1
    assert files_root().stat().st_mode & 0o077 == 0
    for holder in holders:
        assert (holder.path / "cache" / "file").read_text() == "content"
        holder.leave()
        holder.leave()
    assert left() == []
    # And all at once.
    for holder in holders:
        holder.enter(fill)
    threads = [threading.Thread(target=holder.leave) for holder in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fill.times == 2
    assert left() == []


def test_jobs_do_not_touch_each_other() -> None:
    one, two = JobFolder("one"), JobFolder("two")
    one.enter(Filling())
    two.enter(Filling())
    one.leave()
    assert not one.path.exists()
    assert (two.path / "cache" / "file").exists()
    two.leave()
    assert left() == []


def test_what_cannot_be_filled_leaves_nothing() -> None:
    def fail(folder: Path) -> list[str]:
        (folder / "half").write_text("")
        raise ConfigurationError("no archive")

    holder = JobFolder("job")
    with pytest.raises(ConfigurationError, match="no archive"):
        holder.enter(fail)
    assert left() == []
    fill = Filling()
    holder.enter(fill)
    assert fill.times == 1
    holder.leave()


@pytest.mark.parametrize("while_filling", [False, True])
def test_what_a_killed_process_left_goes_with_the_next_job(
    while_filling: bool, tmp_path: Path
) -> None:
    program = (
        "import sys, tempfile, time\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from strom.engine.hosts.job_folder import JobFolder\n"
        "def fill(folder):\n"
        f"    (folder / {WORK!r} / 'archive').mkdir(parents=True)\n"
        f"    while {while_filling}: time.sleep(1)\n"
        "    return ['archive']\n"
        "JobFolder('killed').enter(fill)\n"
        "time.sleep(60)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", program], env=env)
    try:
        kind = f"killed.part-*/{WORK}/archive" if while_filling else f"killed/{WORK}/archive"
        until(lambda: list(files_root().glob(kind)), "the folder of the other process")
        other = JobFolder("other")
        other.enter(Filling())
        assert list(files_root().glob(kind)), "it is in use"
        other.leave()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    third = JobFolder("third")
    third.enter(Filling())
    assert left() == ["third", "third.fill", "third.use"]
    third.leave()
    assert left() == []


def test_a_process_that_comes_while_the_folder_is_removed_makes_it_anew() -> None:
    fill, stop = Filling(), time.monotonic() + 1.0

    def come_and_go() -> None:
        while time.monotonic() < stop:
            holder = JobFolder("job")
            holder.enter(fill)
            assert (holder.path / "cache" / "file").exists()
            holder.leave()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            come_and_go()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert fill.times > 1
    assert left() == []


def test_a_root_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    files_root().symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match="belongs to another user: files of jobs are not"):
        JobFolder("job").enter(Filling())
