"""How the kernels are compiled: numba argument types and options, in one place.

Arrow's buffers are read-only and numpy's are not; numba sees two types. Inputs are declared
read-only, which accepts both, so that each kernel is compiled for int64 and float64 and no more,
and is loaded from numba's on-disk cache afterwards. Every kernel has a twin in `reference`.

Shapes: `slots`, `values`, `valid` have one entry per row; `valid` may be empty, which means that no
row is null. Accumulator arrays have one entry per slot or more.
"""

from __future__ import annotations

from ...core.native import Array, boolean, float64, int64

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}

INTS_IN = Array(int64, 1, "C", readonly=True)
FLOATS_IN = Array(float64, 1, "C", readonly=True)
BOOLS_IN = Array(boolean, 1, "C", readonly=True)
INTS = int64[::1]
FLOATS = float64[::1]
BOOLS = boolean[::1]

VALUES = ((INTS_IN, INTS), (FLOATS_IN, FLOATS))
"""(input, accumulator) array types of the two value types."""
