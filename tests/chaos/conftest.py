"""Makes `chaos_kit` importable, and checks after every test that no job thread is left."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

_SPEC = importlib.util.spec_from_file_location(
    "chaos_kit", Path(__file__).with_name("chaos_kit.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
_KIT = importlib.util.module_from_spec(_SPEC)
sys.modules["chaos_kit"] = _KIT
_SPEC.loader.exec_module(_KIT)
cloudpickle.register_pickle_by_value(_KIT)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Jobs end their threads, however they end."""
    before = set(_KIT.strom_threads())
    yield
    _KIT.until(
        lambda: set(_KIT.strom_threads()) <= before,
        f"the end of the job's threads, left are {_KIT.strom_threads()}",
        5.0,
    )
