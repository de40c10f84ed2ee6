"""What a crash of the machine must not lose. A file's content is durable when the file is synced,
its name when the folder is in which it stands, and so on upwards for folders that are new."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """The content of a file, or the names in a folder, are durable when it returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make it, and what is missing above it. Its name is durable when it returns, also if somebody
    else is about to make it."""
    if path == path.parent:
        return
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)
