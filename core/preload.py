"""Loading compiled code before records flow.

Kernels load on first use, so that a task pays only for what it runs. A task that knows what it will
run loads it while it opens: where there is no kernel library (core/native) the better part of a
second then passes before the job is running, and not in the delay of its first records.
"""

from __future__ import annotations

from importlib import import_module

_ROOT = __name__.rsplit(".", 2)[0]


def preload(*modules: str) -> None:
    """Import modules of this package, named from its root (`"state.hash_kernels"`)."""
    for module in modules:
        import_module(f"{_ROOT}.{module}")
