"""What a process imports before it has a job: all of strom that the job's program may import, and
no library that few programs use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from strom import CheckpointConfig, JobConfig, KeyedProcessFunction, StreamExecutionEnvironment
from strom import DataStream, DiscardSink, TumblingEventTimeWindows, WatermarkStrategy
"""

READY = """
import sys
from strom.engine.hosts.ray_task import import_face
import_face()
before = set(sys.modules)
import program
assert set(sys.modules) - before == {"program"}, sorted(set(sys.modules) - before)
assert not {"pandas", "polars", "numba", "pyspark", "fastapi"} & set(sys.modules)
"""


def test_a_program_imports_nothing_of_strom_any_more(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-c", READY], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
