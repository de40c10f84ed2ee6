"""Makes `tables_kit` importable from the tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "tables_kit", Path(__file__).with_name("tables_kit.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
_KIT = importlib.util.module_from_spec(_SPEC)
sys.modules["tables_kit"] = _KIT
_SPEC.loader.exec_module(_KIT)
