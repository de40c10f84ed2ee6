"""The equivalence harness as most tests run it: `make test` draws one of the seeds that a pipeline
names, another from test to test, and `make soak` runs all of them.

One seed is a job that is stopped and goes on rescaled, with crashes, and another state backend on
the way. Which kind of stop it is depends on the seed, so that of many pipelines all kinds are run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

from amounts import SHARE
from strom.testing import equivalence
from strom.testing.equivalence import Ways
from strom.testing.probes import Build, BuildFiles


def fewer(ways: Ways) -> Ways:
    """One of the seeds, drawn by the name of the test that runs; those that are run as long as
    nothing was interrupted are as many more."""
    most = len(ways.seeds)
    if SHARE >= 1 or most < 2:
        return ways
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    seed = ways.seeds[crc32(test.encode()) % most]
    return replace(ways, seeds=(seed,), spare=ways.spare + most - 1)


def assert_equivalent(
    build: Build, expected: Iterable[Any] | None = None, ways: Ways | None = None
) -> list[Any]:
    return equivalence.assert_equivalent(build, expected, fewer(ways or Ways()))


def assert_files_equivalent(
    build: BuildFiles,
    read: Callable[[Path], list[Any]],
    expected: Iterable[Any] | None = None,
    ways: Ways | None = None,
) -> list[Any]:
    return equivalence.assert_files_equivalent(build, read, expected, fewer(ways or Ways()))
