"""Checks after every test that no job thread is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos_kit import strom_threads, until


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Jobs end their threads, however they end."""
    before = set(strom_threads())
    yield
    until(
        lambda: set(strom_threads()) <= before,
        f"the end of the job's threads, left are {strom_threads()}",
        5.0,
    )
