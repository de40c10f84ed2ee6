"""Folders below the system's one for temporary files, of one user alone."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ConfigurationError


def private_folder(root: Path, what: str) -> Path:
    """The folder, made if need be, of this user alone. ConfigurationError if it is another's."""
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise ConfigurationError(f"{root} belongs to another user: {what} are not put there")
    return root
