"""Cases that once failed, and what was wrong then. They run in each test.

A case is written down whole, as it was printed, shrunk if possible: what seeds draw may change.
"""

from __future__ import annotations

from typing import Final

REGRESSIONS: Final[dict[str, str]] = {}
