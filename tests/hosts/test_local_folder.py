"""Where copies of checkpoints lie on a machine: there while any process of the job is, gone with
the last, whatever became of the others; and jobs on the local host that restart from them."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import until
from strom import CheckpointConfig, JobConfig
from strom.connectors.datagen import DataGenSource
from strom.engine.hosts.local_folder import LocalFolders, copies_roots


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left(*dirs: str) -> list[str]:
    return sorted(entry.name for root in copies_roots(dirs) for entry in root.iterdir())


def test_the_last_one_removes_it() -> None:
    holders = [LocalFolders("job") for _ in range(8)]
    threads = [threading.Thread(target=holder.enter) for holder in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (path,) = {path for holder in holders for path in holder.enter()}
    for folder in (Path(path), Path(path).parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (Path(path) / "shared").mkdir()
    (Path(path) / "shared" / "1-a.arrow").write_text("content")
    for holder in holders[1:]:
        holder.leave()
        holder.leave()
    assert (Path(path) / "shared" / "1-a.arrow").exists()
    holders[0].leave()
    assert left() == []


def test_jobs_do_not_touch_each_other() -> None:
    one, two = LocalFolders("one"), LocalFolders("two")
    one.enter()
    (path,) = two.enter()
    (Path(path) / "chk-1").mkdir()
    one.leave()
    assert left() == ["two", "two.use"]
    two.leave()
    assert left() == []


def test_the_next_process_finds_what_one_has_left_if_another_stayed() -> None:
    first, second, third = (LocalFolders("job") for _ in range(3))
    (path,) = first.enter()
    second.enter()
    (Path(path) / "chk-1").mkdir()
    first.leave()
    assert third.enter() == (path,)
    assert (Path(path) / "chk-1").exists()
    second.leave()
    third.leave()


def test_folders_are_spread_and_made(tmp_path: Path) -> None:
    dirs = [str(tmp_path / "a" / "b"), str(tmp_path / "c")]
    holder = LocalFolders("job", dirs)
    found = holder.enter()
    assert [Path(path).parent.parent for path in found] == [Path(one) for one in dirs]
    holder.leave()
    assert left(*dirs) == []


def test_a_folder_that_cannot_be_had_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file in its place, one that leads elsewhere, and one that is as it should be."""
    (tmp_path / "file").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (linked,) = copies_roots([str(tmp_path / "linked")])
    linked.parent.mkdir()
    linked.symlink_to(tmp_path / "elsewhere")
    dirs = [str(tmp_path / "file"), str(tmp_path / "linked"), str(tmp_path / "good")]
    holder = LocalFolders("job", dirs)
    with caplog.at_level(logging.WARNING, logger="strom"):
        assert [Path(path).parent.parent.name for path in holder.enter()] == ["good"]
    assert len(caplog.records) == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []
    holder.leave()


def test_what_a_killed_process_left_goes_with_the_next_job(tmp_path: Path) -> None:
    program = (
        "import tempfile, time\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from pathlib import Path\n"
        "from strom.engine.hosts.local_folder import LocalFolders\n"
        "(path,) = LocalFolders('killed').enter()\n"
        "(Path(path) / 'shared').mkdir()\n"
        "(Path(path) / 'shared' / '1-a.arrow').write_text('content')\n"
        "time.sleep(60)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", program], env=env)
    try:
        (root,) = copies_roots([])
        until((root / "killed/shared/1-a.arrow").exists, "the folder of the other process")
        other = LocalFolders("other")
        other.enter()
        assert (root / "killed/shared/1-a.arrow").exists(), "it is in use"
        other.leave()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    # A removal that was interrupted, too.
    (root / "killed.part-gone").mkdir()
    (root / "killed.part-gone" / "1-b.arrow").write_text("content")
    other.enter()
    assert left() == ["other", "other.use"]
    other.leave()
    assert left() == []


# --- jobs on the local host --------------------------------------------------------------------


def started(folder: Path, failures: int, count: int | None = 60_000, **checkpoint: Any) -> Any:
    """A job that fails so often, each time behind another checkpoint."""
    config = CheckpointConfig(
        timedelta(milliseconds=10), str(folder / "chk"), local_recovery=True, **checkpoint
    )
    restart = strom.FixedDelayRestart(failures, timedelta(0))
    env = strom.StreamExecutionEnvironment.get_execution_environment(
        JobConfig(parallelism=2, checkpoint=config, restart=restart, batch_size=100)
    )
    source = DataGenSource(lambda start, n: list(range(start, start + n)), count, rate=30_000)

    def fail_now_and_then(n: int) -> int:
        seen = len(list(folder.glob("failed-*")))
        if n % 500 == 0 and seen < failures:
            newest = max(folder.glob("chk/*/chk-*/manifest.json"), default=None, key=number)
            if newest is not None and not (folder / f"failed-{number(newest)}").exists():
                (folder / f"failed-{number(newest)}").touch()
                raise ValueError("it fails")
        return n

    keyed = env.from_source(source).map(fail_now_and_then).key_by(lambda n: n % 50)
    keyed.reduce(max).sink_to(strom.DiscardSink())
    return env.execute_async("copying")


def number(manifest: Path) -> int:
    return int(manifest.parent.name.removeprefix("chk-"))


def test_a_job_that_fails_restarts_from_copies(tmp_path: Path) -> None:
    client = started(tmp_path, failures=3)
    result = client.get_job_execution_result(timedelta(seconds=120))
    assert 1 <= result.restarts <= 3, "both subtasks may fail in one attempt"
    figures = result.metrics["checkpoints"]
    assert figures["restored_bytes"] == figures["restored_local_bytes"] > 0
    assert left() == []


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_nothing_is_left_however_a_job_ends(tmp_path: Path, end: str) -> None:
    client = started(tmp_path, failures=0, count=None)
    (root,) = copies_roots([])
    until(lambda: list(root.glob("*/chk-*/*")), "copies")
    if end == "failed":
        (tmp_path / "chk").rename(tmp_path / "gone")
        (tmp_path / "chk").write_text("no folder")
        with pytest.raises(strom.JobFailedError):
            client.get_job_execution_result(timedelta(seconds=60))
    else:
        client.cancel()
    assert left() == []


def test_what_is_not_kept_is_not_read(tmp_path: Path) -> None:
    client = started(tmp_path, failures=1, count=20_000, local_backup=False)
    figures = client.get_job_execution_result(timedelta(seconds=120)).metrics["checkpoints"]
    assert figures["restored_local_bytes"] == 0 < figures["restored_bytes"]
    assert not CheckpointConfig().keeps_copies
    assert not copies_roots([])[0].exists()
