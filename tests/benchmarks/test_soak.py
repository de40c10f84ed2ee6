"""`soak`: its plan, its job and what that has to come to, what is told of output that is not right,
and what is found to grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos_kit import until
from hypothesis import given
from hypothesis import strategies as st
from strom import JobConfig, StreamExecutionEnvironment
from strom.benchmarks import cli, soak, soak_storage, soak_watch
from strom.benchmarks.soak_job import OUTPUTS, Expected, Input, build, checksum
from strom.benchmarks.soak_output import Verified, verify
from strom.benchmarks.soak_plan import AWAY_S, KINDS, MOST, RESTS_S, faults
from strom.benchmarks.soak_watch import (
    EVERY_S,
    ITSELF,
    Sample,
    Watch,
    all_flat,
    figures_of,
    flatness,
    folder_figures,
    own_processes,
)
from strom.checkpoint.storage import open_storage
from strom.core.errors import CheckpointError
from strom.engine.hosts.job_record import DEATHS_MS, MOST_DEATHS

SMALL = Input(rate=700, seconds=3, keys=40)


# --- the plan ------------------------------------------------------------------------------------


@given(st.integers(), st.floats(0.5, 60.0), st.sets(st.sampled_from(KINDS), min_size=1))
def test_a_plan_is_that_of_its_seed(seed: int, every: float, kinds: set[Any]) -> None:
    plan = list(islice(faults(seed, every, kinds), 50))
    assert plan == list(islice(faults(seed, every, sorted(kinds)), 50))
    assert {fault.kind for fault in plan} <= kinds
    assert all(b.at - a.at >= every * 0.49 for a, b in pairwise(plan))
    for kind in kinds:
        times = [fault.at for fault in plan if fault.kind == kind]
        assert all(b - a >= RESTS_S[kind] for a, b in pairwise(times))
    for fault in plan:
        assert fault.kind != "rescale" or 1 <= fault.draw <= MOST
        assert (fault.kind == "storage") == (AWAY_S[0] <= fault.seconds <= AWAY_S[1])


def test_another_seed_is_another_plan_and_all_kinds_come() -> None:
    one, other = (list(islice(faults(seed, 5.0), 40)) for seed in (1, 2))
    assert one != other
    assert {fault.kind for fault in one} == set(KINDS)


def test_without_kinds_nothing_happens() -> None:
    assert list(faults(1, 5.0, ())) == []


def test_a_job_forgives_all_deaths_of_its_coordinators() -> None:
    assert RESTS_S["coordinator"] * 1000 * (MOST_DEATHS - 1) >= DEATHS_MS


# --- what the job comes to -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run on the local host leaves."""
    folder = tmp_path_factory.mktemp("soak")
    config = JobConfig(parallelism=2)
    env = StreamExecutionEnvironment.get_execution_environment(config, "local")
    build(env, SMALL, folder)
    env.execute("soak")
    return folder


@pytest.fixture
def copied(published: Path, tmp_path: Path) -> Path:
    for name in OUTPUTS:
        (tmp_path / name).mkdir()
        rows = pq.read_table(published / name, partitioning=None).to_pylist()
        write(tmp_path / name, rows)
    return tmp_path


def write(folder: Path, rows: list[Any]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


def rows_in(folder: Path) -> list[Any]:
    found: list[Any] = pq.read_table(folder / "part-0.parquet", partitioning=None).to_pylist()
    return found


def test_a_run_comes_to_what_is_expected(published: Path) -> None:
    expected = Expected.of(SMALL)
    assert expected.n.sum() == len(OUTPUTS) * SMALL.clicks
    found = verify(published, expected)
    assert found == Verified(expected.rows, 0, 0, 0, True)
    assert found.right


def test_what_is_expected_record_by_record() -> None:
    """The same in plain Python."""
    expected = Expected.of(SMALL)
    prices = {}
    for k, price, at in zip(*SMALL.price_columns(0, SMALL.prices), strict=True):
        prices[k, at // 1000] = price
    windows, joined = {}, {}
    for k, v, at in zip(*SMALL.click_columns(0, SMALL.clicks), strict=True):
        place = at // 1000, k
        windows[place] = windows.get(place, 0) + v
        joined[place] = joined.get(place, 0) + v * prices[k, at // 1000]
    for output, sums in enumerate((windows, joined)):
        assert {at: expected.total[output][at] for at in sums} == sums
        assert expected.total[output].sum() == sum(sums.values())


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_lost_record_is_found(copied: Path, output: str) -> None:
    expected = Expected.of(SMALL)
    write(copied / output, rows_in(copied / output)[1:])
    found = verify(copied, expected)
    assert found == Verified(expected.rows - 1, 1, 0, 0, False)
    assert not found.right


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_doubled_record_is_found(copied: Path, output: str) -> None:
    expected = Expected.of(SMALL)
    rows = rows_in(copied / output)
    write(copied / output, [*rows, rows[3], rows[3], rows[5]])
    assert verify(copied, expected) == Verified(expected.rows + 3, 0, 3, 0, False)


@pytest.mark.parametrize("change", [{"n": 1}, {"total": 1}, {"k": 1_000_000}])
def test_a_record_that_is_wrong_is_found(copied: Path, change: dict[str, int]) -> None:
    rows = rows_in(copied / "joined")
    for name, more in change.items():
        rows[0][name] += more
    write(copied / "joined", rows)
    found = verify(copied, Expected.of(SMALL))
    assert (found.wrong, found.checksum, found.right) == (1, False, False)
    assert found.lost == ("k" in change)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.randoms())
def test_a_checksum_is_that_of_rows_in_any_order(rows: list[Any], random: Any) -> None:
    one = checksum(*np.array(rows).T)
    random.shuffle(rows)
    assert checksum(*np.array(rows).T) == one
    parts = [checksum(*np.array([row]).T) for row in rows]
    assert sum(parts) % (1 << 64) == one


# --- what is watched -----------------------------------------------------------------------------


def samples(name: str, values: Sequence[float]) -> list[Sample]:
    return [Sample(at * EVERY_S, {name: value}) for at, value in enumerate(values)]


def test_what_stays_is_flat_whatever_it_began_with_and_jumped_to_in_between() -> None:
    values = [10] * 30 + [100, 101] * 15 + [100, 900, 102] * 10
    found = flatness(samples("task_handles", values))["task_handles"]
    assert (found.second, found.last, found.flat) == (100.5, 102, True)


def test_what_grows_is_not_flat() -> None:
    found = flatness(samples("task_rss_mb", range(200, 500)))["task_rss_mb"]
    assert not found.flat
    assert found.second < found.bound < found.last


def test_a_process_that_lives_for_a_part_of_the_time_is_not_held_against_nothing() -> None:
    some = samples("raylet_threads", [3.0] * 9)
    assert flatness(some + [Sample(18 + at, {"task_threads": 1.0}) for at in range(9)]) == {}
    assert flatness([]) == {}
    assert not all_flat({}), "nothing was seen"


def test_what_fails_once_is_watched_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A coordinator that was killed does not answer, a process goes while it is looked at."""
    monkeypatch.setattr(soak_watch, "EVERY_S", 0.01)
    asked: list[int] = []
    takes = iter([RuntimeError("it went away"), {"task_threads": 1.0}])

    def take() -> dict[str, float]:
        one = next(takes, {"task_threads": 2.0})
        if isinstance(one, Exception):
            raise one
        return one

    def ask() -> None:
        asked.append(len(asked))
        raise OSError("nobody answers")

    with Watch(take, ask) as watch:
        until(lambda: len(watch.samples) > 2 and len(asked) > 2, "both again")
    assert watch.samples[0].figures == {"task_threads": 1.0}
    said = capsys.readouterr().err
    assert "it went away" in said
    assert "nobody answers" in said


def test_all_that_is_watched_has_a_bound_and_what_others_start_is_not_watched(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"123")
    command = ["-c", "import sys; sys.stdin.read()", "ray::TaskActor"]
    with subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE) as child:
        there = own_processes()
        taken = figures_of(there) | folder_figures("checkpoint", [tmp_path])
        child.communicate()
    assert [one.pid for one in there["task"]] == [child.pid]
    assert [one.pid for one in there[ITSELF]] == [os.getpid()]
    assert taken["checkpoint_files"] == taken["task_processes"] == 1
    assert taken["task_handles"] >= 3
    assert "task" not in own_processes()
    found = flatness([Sample(at, taken) for at in range(9)])
    assert found.keys() == taken.keys()
    assert all_flat(found)


# --- the storage ---------------------------------------------------------------------------------

REACH = """
import sys, fsspec
filesystem, path = fsspec.core.url_to_fs(sys.argv[1])
filesystem.pipe_file(path, b"from another process")
"""


def test_every_process_reaches_the_storage_and_none_while_it_is_away(tmp_path: Path) -> None:
    with soak_storage.reachable(tmp_path) as storage:
        url = storage.url(tmp_path / "some" / "file")
        subprocess.run([sys.executable, "-c", REACH, url], check=True, timeout=60)
        filesystem, path = fsspec.core.url_to_fs(url)
        assert filesystem.cat_file(path) == b"from another process"
        storage.go(60.0)
        for _ in range(20):
            with pytest.raises(Exception, match=r"no answer|SlowDown|reset|busy"):
                filesystem.cat_file(path)
        storage.go(-1.0)
        assert filesystem.cat_file(path) == b"from another process"


def test_a_file_is_made_once(tmp_path: Path) -> None:
    with soak_storage.reachable(tmp_path) as storage:
        filesystem, path = fsspec.core.url_to_fs(storage.url(tmp_path / "file"))
        filesystem.pipe_file(path, b"one", mode="create")
        with pytest.raises(FileExistsError):
            filesystem.pipe_file(path, b"two", mode="create")
        filesystem.pipe_file(path, b"three")
        assert filesystem.cat_file(path) == b"three"
        assert [one["name"] for one in filesystem.ls(str(tmp_path)) if one["type"] == "file"] == [
            path
        ]


def test_checkpoints_are_not_written_while_it_is_away(tmp_path: Path) -> None:
    with soak_storage.reachable(tmp_path) as storage:
        kept = open_storage(storage.url(tmp_path / "checkpoints"), "job")
        handle = kept.write_file(1, "before", b"there")  # type: ignore[arg-type]
        storage.go(60.0)
        began = time.monotonic()
        with pytest.raises(CheckpointError):
            kept.write_file(1, "meanwhile", b"nowhere")  # type: ignore[arg-type]
        assert time.monotonic() < began + 30.0
        storage.go(-1.0)
        assert kept.read_file(1, handle).to_pybytes() == b"there"  # type: ignore[arg-type]


# --- all of it -----------------------------------------------------------------------------------


def test_what_a_job_told_is_summed_over_its_coordinators() -> None:
    told = soak.Told(None)
    for restarts, completed, failed in [(0, 3, 0), (2, 5, 1), (0, 1, 0), (1, 4, 0)]:
        checkpoints = {"completed": completed, "failed": failed}
        told.add({"restarts": restarts, "checkpoints": checkpoints, "tasks": []})
    assert told.counts == {"restarts": 3, "completed": 9, "failed": 1}


@pytest.mark.parametrize("options", ["--faults flood", "--minutes 0", "--rate 0", "--every nan"])
def test_nonsense_is_refused(options: str) -> None:
    with pytest.raises(SystemExit):
        list(cli.run(cli.parser().parse_args(["soak", *options.split()])))


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_minute_of_it() -> None:
    """In a process of its own: it starts a cluster of several nodes."""
    command = [sys.executable, "-m", "strom.benchmarks", "soak", "--minutes", "1", "--every", "4"]
    more = ["--rate", "10000", "--keys", "500", "--json"]
    done = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True, timeout=800)
    line = json.loads(done.stdout)
    assert line["right"], line
    assert done.returncode == 0
    assert sum(line["faults"].values()) >= 8, line
    assert line["leftovers"] == {}
