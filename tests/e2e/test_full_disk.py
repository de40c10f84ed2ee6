"""A disk on which the local RocksDB cannot write: the job fails, says where and what to do, and
leaves nothing there. RocksDB refuses to be closed then, too, which must not be what is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import full_disk_job as program
import pytest


@pytest.mark.parametrize("state", ["map", "rows"])
def test_a_database_that_cannot_write_fails_its_task_and_is_removed(
    tmp_path: Path, state: str
) -> None:
    done = subprocess.run(
        [sys.executable, program.__file__, str(tmp_path), state],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "failed: task " in done.stdout, done
    assert "kept" in done.stdout
    assert "(1/1): StateError: the local RocksDB in " in done.stdout
    assert "File too large" in done.stdout
    assert "state.backend.rocksdb.localdir" in done.stdout
    assert list(tmp_path.iterdir()) == []
