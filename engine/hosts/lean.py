"""Keeping a task's process small, its garbage collector out of the way, and its memory at hand.

pyarrow imports pandas for the first array it makes of numpy values, wherever pandas is installed:
half a second and 40 MB for a task that never sees a data frame. Here it is told that there is no
pandas, until somebody imports pandas: then pyarrow is told that there is. (Where it has to infer a
type from Python values, pyarrow imports pandas itself.)
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Any

GC_THRESHOLDS = (100_000, 20, 50)
"""Rows are short-lived tuples by the ten thousand: Python's own thresholds would look for cycles
among them every 700, which costs as much as making them."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""

KEPT_BYTES = 64 << 20
"""Free memory at the end of a heap that is not given back to the system."""

HEAP_BYTES = 4 << 20
"""Smaller arrays come from the heap, larger ones are maps of their own."""


def settle() -> None:
    """What is imported so far lives as long as the process: the collector need not look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def keep_freed_memory() -> None:
    """Have the C library keep the memory of a batch's arrays for those of the next.

    By itself glibc maps arrays of 128 KB and more one by one, or trims its heap when they are
    freed. A column of 16,384 numbers is that large, and every page of every batch then costs a
    fault: half of all that a source takes. Other C libraries are left alone."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is not None and hasattr(library, "mallopt"):
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, HEAP_BYTES)


class SeldomCollecting:
    """While entered, by however many jobs at once, the collector looks for cycles as seldom as in a
    task's process; after that as before. For jobs in the user's own process, which keeps its
    objects and its settings."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entered = 0
        self._before = gc.get_threshold()

    def __enter__(self) -> None:
        with self._lock:
            if not self._entered:
                self._before = gc.get_threshold()
                if 0 < self._before[0] < GC_THRESHOLDS[0]:
                    gc.set_threshold(*GC_THRESHOLDS)
            self._entered += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered and gc.get_threshold() == GC_THRESHOLDS:
                gc.set_threshold(*self._before)


seldom_collecting = SeldomCollecting()


def postpone_pandas() -> None:
    """Make pyarrow's first array without pandas. Does nothing if pandas is loaded already."""
    if "pandas" in sys.modules or any(isinstance(f, _Pandas) for f in sys.meta_path):
        return
    import numpy as np
    import pyarrow as pa

    finder = _Pandas()
    sys.meta_path.insert(0, finder)
    pa.array(np.empty(0))
    finder.postponing = False


class _Pandas:
    """An import hook that sees nothing but the import of pandas.

    `postponing`: refuse it, as if pandas were not there. Afterwards it lets it pass once, with
    pyarrow waiting at the end."""

    def __init__(self) -> None:
        self.postponing = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.postponing:
            raise ModuleNotFoundError("pandas is not imported before somebody asks for it")
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> Any:
                load(module)
                from pyarrow.lib import _pandas_api

                return _pandas_api.pd

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
