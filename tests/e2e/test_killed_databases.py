"""Processes that are killed in the middle of anything: writing to RocksDB, linking its files,
uploading them, opening those of a checkpoint. The local database is only a cache."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import killed_database_job as program
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import open_storage
from strom.state.rocks.database.folders import PREFIX

KILLS = 2


def newest(checkpoints: Path) -> tuple[str, Manifest] | None:
    """Of all jobs the last one's newest; every published one must be whole."""
    jobs = sorted(checkpoints.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    for job in jobs:
        latest = open_storage(str(checkpoints), job.name).latest_valid()
        assert all(one.unpublished for one in latest.rejected), latest.rejected
        if latest.manifest is not None:
            return str(job / f"chk-{latest.manifest.checkpoint_id}"), latest.manifest
    return None


def test_whatever_a_kill_leaves_the_job_goes_on_exactly(tmp_path: Path) -> None:
    rng = random.Random()
    checkpoints, local, result = tmp_path / "checkpoints", tmp_path / "local", tmp_path / "result"
    checkpoints.mkdir()
    local.mkdir()
    point: list[str] = []
    with_files = 0
    for _ in range(KILLS):
        jobs = set(checkpoints.iterdir())
        process = subprocess.Popen(
            [sys.executable, program.__file__, str(checkpoints), str(local), str(result), *point]
        )
        try:
            while process.poll() is None and not _has_completed(set(checkpoints.iterdir()) - jobs):
                time.sleep(0.005)
            time.sleep(rng.random() * 0.7)
        finally:
            process.kill()
            process.wait()
        found = newest(checkpoints)
        assert found is not None
        point = [found[0]]
        operators = [one for subtask in found[1].subtasks for one in subtask.operators]
        with_files += any(one.database is not None for one in operators)
    assert with_files
    subprocess.run(
        [sys.executable, program.__file__, str(checkpoints), str(local), str(result), *point],
        check=True,
        timeout=60,
    )
    totals, sums = json.loads(result.read_text())
    expected = program.expected()
    late = {program.key_of(n) for n in range(program.COUNT - 100, program.COUNT)}
    assert {key: totals[key] for key in late} == {key: expected[key] for key in late}
    assert {key: sums[key] for key in late} == {key: expected[key][1] for key in late}
    assert not list(local.glob(f"{PREFIX}*"))


def _has_completed(jobs: set[Path]) -> bool:
    return any(next(job.glob("chk-*/manifest.json"), None) for job in jobs)
