"""Archives and cached files on the local host: functions find them, the program stays where it is,
and nothing is left."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest
import strom
from chaos_kit import until
from drawn_ways import assert_equivalent
from strom import CheckpointConfig, JobConfig, MapFunction, RuntimeContext
from strom.connectors.datagen import DataGenSource
from strom.connectors.files.sink import FileSink
from strom.core.job_files import DistributedCache, files_root
from strom.engine.hosts import local

make = strom.StreamExecutionEnvironment.get_execution_environment


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program's working directory, with an archive, a tar and a folder in it; what jobs leave is
    looked at in the end."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    here = tmp_path / "here"
    (here / "folder" / "deep").mkdir(parents=True)
    (here / "folder" / "deep" / "b.txt").write_text("of a folder")
    (here / "tool.sh").write_text("#!/bin/sh\necho ran\n")
    with zipfile.ZipFile(here / "data.zip", "w") as archive:
        archive.writestr("data/a.txt", "of a zip")
    with tarfile.open(here / "more.tar.gz", "w:gz") as tar:
        tar.add(here / "folder", arcname="folder")
    monkeypatch.chdir(here)
    yield here
    assert not files_root().exists() or list(files_root().iterdir()) == []


def text(path: str) -> str:
    return Path(path).read_text()


def numbers(count: int | None) -> DataGenSource:
    return DataGenSource(lambda start, n: list(range(start, start + n)), count)


def test_functions_open_archives_by_relative_paths(place: Path) -> None:
    def read(n: int) -> tuple[str, str, str, str]:
        seen: list[str] = []
        other = threading.Thread(target=lambda: seen.append(text("data.zip/data/a.txt")))
        other.start()
        other.join()
        deep = text("deep/er/folder/deep/b.txt")
        return text("data.zip/data/a.txt"), deep, seen[0], os.getcwd()

    env = make()
    env.add_python_archive("data.zip")
    env.add_python_archive(str(place / "more.tar.gz"), "deep/er")
    env.add_python_archive("data.zip")  # nothing new
    ((one, two, threaded, folder),) = (
        env.from_collection([1]).map(read).execute_and_collect(limit=1)
    )
    assert (one, two, threaded) == ("of a zip", "of a folder", "of a zip")
    assert Path(folder).is_relative_to(files_root())
    assert Path.cwd() == place, "the program's own working directory"
    # The next job has them as well.
    with env.from_collection([1]).map(read).execute_and_collect("next") as results:
        assert next(iter(results))[0] == "of a zip"


def test_threads_that_stay_are_where_the_program_is_then(place: Path, tmp_path: Path) -> None:
    """As the pools of libraries that functions use first."""
    flag = tmp_path / "end"

    def start(n: int) -> str:
        def stay() -> None:
            until(flag.exists, "the end of the test")

        threading.Thread(target=stay, name="staying", daemon=True).start()
        return text("data.zip/data/a.txt")

    env = make()
    env.add_python_archive("data.zip")
    assert env.from_collection([1]).map(start).execute_and_collect(limit=1) == ["of a zip"]
    until(lambda: not list(files_root().iterdir()), "the end of the job")
    (staying,) = [thread for thread in threading.enumerate() if thread.name == "staying"]
    assert os.readlink(f"/proc/self/task/{staying.native_id}/cwd") == str(place)
    flag.touch()
    staying.join()


class Reads(MapFunction):
    """Through the cache: a file, a folder, a remote file, an executable, an archive's folder."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.file = runtime_context.get_distributed_cache().get_file

    def map(self, value: Any) -> Any:
        ran = subprocess.run([self.file("tool")], capture_output=True, check=True).stdout.decode()
        return [
            self.file("one").read_text(),
            (self.file("many") / "deep" / "b.txt").read_text(),
            self.file("far").read_text(),
            (self.file("far folder") / "x" / "y.txt").read_text(),
            ran,
            (self.file("data.zip") / "data" / "a.txt").read_text(),
            str(self.file("one").relative_to(files_root())),
        ]


def registered(env: Any) -> Any:
    memory = fsspec.filesystem("memory")
    memory.pipe("/far/far.txt", b"from far")
    memory.pipe("/far/x/y.txt", b"from farther")
    env.register_cached_file("folder/deep/b.txt", "one")
    env.register_cached_file("folder", "many")
    env.register_cached_file("memory://far/far.txt", "far")
    env.register_cached_file("memory://far", "far folder")
    env.register_cached_file(f"file://{Path('tool.sh').absolute()}", "tool", executable=True)
    env.add_python_archive("data.zip")
    return env


def test_cached_files(place: Path) -> None:
    env = registered(make(JobConfig(parallelism=2)))
    (found,) = env.from_collection([1]).map(Reads()).execute_and_collect(limit=1)
    *texts, where = found
    assert texts == ["of a folder", "of a folder", "from far", "from farther", "ran\n", "of a zip"]
    assert where.endswith("/cache/0/b.txt")


def test_functions_have_copies(place: Path) -> None:
    class Changes(Reads):
        def map(self, value: Any) -> Any:
            self.file("one").write_text("changed")
            return self.file("one").read_text()

    env = make()
    env.register_cached_file("folder/deep/b.txt", "one")
    assert env.from_collection([1]).map(Changes()).execute_and_collect(limit=1) == ["changed"]
    assert text("folder/deep/b.txt") == "of a folder"


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_they_go_however_the_job_ends(end: str) -> None:
    def fail(n: int) -> int:
        return len(text("data.zip/nowhere"))

    env = make(JobConfig(restart=strom.NoRestart()))
    env.add_python_archive("data.zip")
    stream = env.from_source(numbers(None))
    if end == "failed":
        stream = stream.map(fail)
    stream.sink_to(strom.DiscardSink())
    client = env.execute_async("ending")
    if end == "failed":
        with pytest.raises(strom.JobFailedError, match="FileNotFoundError"):
            client.get_job_execution_result()
    else:
        until(lambda: str(client.get_job_status()) == "RUNNING", "the job")
        assert len([entry for entry in files_root().iterdir() if entry.is_dir()]) == 1
        client.cancel()
    until(lambda: not list(files_root().iterdir()), "the end of the folder")


def test_what_functions_write_beside_them_stays(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def write(n: int) -> str:
        Path("mine.txt").write_text("precious")
        return str(Path("mine.txt").absolute())

    env = make()
    env.add_python_archive("data.zip")
    with caplog.at_level(logging.WARNING, logger="strom"):
        (path,) = env.from_collection([1]).map(write).execute_and_collect(limit=1)
        until(lambda: "write to an absolute path instead" in caplog.text, "the warning")
    assert text(path) == "precious"
    assert "mine.txt stays in" in caplog.text
    (left,) = files_root().iterdir()
    assert sorted(os.listdir(left / "work")) == ["mine.txt"]
    assert os.listdir(left) == ["work"], "all else is gone"
    shutil.rmtree(left)


def test_a_folder_that_cannot_be_removed_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Any, to: Any) -> Any:
        raise OSError("no permission")

    def started() -> Any:
        env = make()
        env.add_python_archive("data.zip")
        env.from_source(numbers(None)).sink_to(strom.DiscardSink())
        client = env.execute_async("endless")
        until(lambda: str(client.get_job_status()) == "RUNNING", "the job")
        return client

    client = started()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, logger="strom"):
        patch.setattr(Path, "rename", broken)
        client.cancel()
        assert str(client.get_job_status()) == "CANCELED"
    assert "its files could not be removed: no permission" in caplog.text
    assert len([entry for entry in files_root().iterdir() if entry.is_dir()]) == 1
    started().cancel()  # the next job does it


def test_relative_paths_of_the_job_are_the_programs(place: Path) -> None:
    """Nothing that a job keeps may be in a folder that goes with it."""

    def run(restore_from: str | None) -> None:
        checkpoint = CheckpointConfig(timedelta(milliseconds=5), "checkpoints")
        env = make(JobConfig(checkpoint=checkpoint, restore_from=restore_from))
        env.add_python_archive("data.zip")
        read = lambda n: {"n": n, "text": text("data.zip/data/a.txt")}
        env.from_source(numbers(20_000)).uid("n").map(read).sink_to(FileSink("out", "jsonl")).uid(
            "files"
        )
        env.execute("relative")

    run(None)
    (taken,) = place.glob("checkpoints/*/chk-*")
    assert sum(len(p.read_text().splitlines()) for p in place.glob("out/part-*")) == 20_000
    run(str(taken.relative_to(place)))
    assert len(list(place.glob("checkpoints/*/chk-*"))) == 2


def test_where_threads_cannot_have_a_directory_of_their_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: Path
) -> None:
    def forbidden(folder: Path) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr(local, "work_in", forbidden)
    env = registered(make())
    with caplog.at_level(logging.WARNING, logger="strom"):
        (found,) = env.from_collection([1]).map(Reads()).execute_and_collect(limit=1)
    assert found[5] == "of a zip"
    assert "(not permitted): let them ask get_distributed_cache().get_file" in caplog.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.add_python_archive("no.zip"), "add_python_archive: there is no .*no.zip"),
        (lambda e: e.add_python_archive("folder"), "folder is a folder, not a file"),
        (lambda e: e.add_python_archive("data.zip", "../x"), "below the working directory"),
        (lambda e: e.add_python_archive("data.zip", "/x"), "below the working directory"),
        (lambda e: e.add_python_archive("data.zip", "."), "below the working directory"),
        (lambda e: e.add_python_archive("more.tar.gz", "taken"), "'taken' is where .*data.zip is"),
        (lambda e: e.add_python_archive("more.tar.gz", "taken/x"), "are one in the other"),
        (lambda e: e.register_cached_file("no.txt", "n"), "register_cached_file: there is no"),
        (lambda e: e.register_cached_file("tool.sh", ""), "name"),
        (lambda e: e.register_cached_file("tool.sh", "known"), "'known' is .*folder: give another"),
        (lambda e: e.register_cached_file("tool.sh", "taken"), "'taken' is where .*data.zip"),
        (lambda e: e.register_cached_file("tool.sh", "n", 1), "executable must be bool"),
        (lambda e: e.set_python_requirements("no.txt"), "set_python_requirements: there is no"),
        (lambda e: e.set_python_requirements("tool.sh", "data.zip"), "is a file, not a folder"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    env = make()
    env.add_python_archive("data.zip", "taken")
    env.register_cached_file("folder", "known")
    before = env.get_job_config().job_files
    with pytest.raises(strom.ConfigurationError, match=message):
        call(env)
    assert env.get_job_config().job_files == before


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "folder/deep/b.txt",
            "cached file 'one' cannot be brought here from .*b.txt: FileNotFound",
        ),
        ("data.zip", "archive .*data.zip cannot be read: "),
    ],
)
def test_a_file_that_is_gone_is_named_when_the_job_is_submitted(path: str, message: str) -> None:
    env = registered(make())
    env.from_collection([1]).sink_to(strom.DiscardSink())
    Path(path).unlink()
    with pytest.raises(strom.ConfigurationError, match=message):
        env.execute("submitted")


def test_a_name_that_nobody_registered() -> None:
    class Asks(Reads):
        def map(self, value: Any) -> Any:
            return self.file("two")

    env = make()
    env.register_cached_file("tool.sh", "one")
    with pytest.raises(strom.JobFailedError, match="no cached file 'two', the job has 'one'"):
        env.from_collection([1]).map(Asks()).execute_and_collect(limit=1)
    cache = DistributedCache("no job", env.get_job_config().job_files)
    with pytest.raises(strom.ConfigurationError, match="and not to the operator harness"):
        cache.get_file("one")


def test_jobs_that_crash_and_are_restored_find_them_again() -> None:
    class Adds(Reads):
        def map(self, value: Any) -> Any:
            of_archive = (self.file("data.zip") / "data" / "a.txt").read_text()
            return value, self.file("one").read_text(), of_archive

    def build(env: Any) -> Any:
        env.register_cached_file("folder/deep/b.txt", "one")
        env.add_python_archive("data.zip")
        return env.from_source(numbers(300)).key_by(lambda n: n % 7).map(Adds())

    assert_equivalent(build, [(n, "of a folder", "of a zip") for n in range(300)])


def test_they_come_by_configuration(place: Path) -> None:
    env = make(
        strom.Configuration.from_dict(
            {
                "python.archives": "data.zip,more.tar.gz#more",
                "python.requirements": "tool.sh#folder",
                "pipeline.cached-files": "name:one,path:tool.sh,executable:true;"
                "name:far,path:memory://far/far.txt",
            }
        )
    )
    files = env.get_job_config().job_files
    assert [(one.path, one.target) for one in files.archives] == [
        (str(place / "data.zip"), "data.zip"),
        (str(place / "more.tar.gz"), "more"),
    ]
    assert [(one.path, one.name, one.executable) for one in files.cached] == [
        (str(place / "tool.sh"), "one", True),
        ("memory://far/far.txt", "far", False),
    ]
    assert files.requirements is not None
    assert files.requirements.file == str(place / "tool.sh")
    assert files.requirements.cache_dir == str(place / "folder")
    with pytest.raises(strom.ConfigurationError, match=r"pipeline\.cached-files.*keys name, path"):
        make(strom.Configuration.from_dict({"pipeline.cached-files": "name:one"}))
