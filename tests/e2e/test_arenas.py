"""Threads share the C library's arenas as soon as there is a RocksDB."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import ctypes, re, threading
from strom.state.rocks.database.arenas import share_arenas
shared = share_arenas()

def allocate(begin):
    begin.wait()
    kept = [ctypes.CDLL(None).malloc(100) for _ in range(1000)]

begin = threading.Barrier(16)
threads = [threading.Thread(target=allocate, args=(begin,)) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
print(shared)
"""


def arenas(**environment: str) -> tuple[int, bool]:
    known = {name: text for name, text in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=known | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.count("<heap nr="), done.stdout.rstrip().endswith("True")


def test_threads_share_two_arenas() -> None:
    assert arenas() == (2, True)


def test_what_the_environment_says_counts() -> None:
    assert arenas(MALLOC_ARENA_MAX="5") == (5, False)
