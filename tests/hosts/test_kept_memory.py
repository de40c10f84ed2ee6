"""A task's process keeps the memory that arrays leave, where the C library is glibc."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
import numpy as np
from strom.engine.hosts.lean import keep_freed_memory

{call}

def batch():
    for column in [np.empty(200_000, dtype=np.uint8) for _ in range(20)]:
        column.fill(1)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(5):
    batch()
before = faults()
for _ in range(20):
    batch()
print(faults() - before)
"""


def faults_of(call: str) -> int:
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_memory_of_a_batch_serves_the_next() -> None:
    """4 MB a batch are 1,000 pages, each a fault when it comes from the system."""
    kept = faults_of("keep_freed_memory()")
    assert kept < 1_000 or sys.platform != "linux"
    assert kept <= faults_of("")
