"""Prints which parameters of PyFlink's names have defaults, for `pyflink_optional.txt` beside it:

    PYTHONPATH=tests/kits PYTHON_WITH_PYFLINK tests/api/pyflink_optional.py > tests/api/pyflink_optional.txt

PYTHON_WITH_PYFLINK: a Python that has `apache-flink`; no JVM is started.
"""  # noqa: E501

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from parity_kit import Name, pyflink_names


def optional(name: Name) -> list[str]:
    owner = getattr(importlib.import_module(name.module), name.owner)
    member = getattr(owner, name.member or "")
    if not callable(member):
        return []
    return [
        one.name
        for one in inspect.signature(member).parameters.values()
        if one.default is not inspect.Parameter.empty
    ]


for name in pyflink_names((Path(__file__).parent / "pyflink_api.txt").read_text()):
    if name.parameters:
        found = optional(name)
        if found:
            print(f"{name.module} {name}: {' '.join(found)}")
