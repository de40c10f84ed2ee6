"""Files of which exactly one of several writers makes each: compare-and-set on a filesystem.

    local            a temporary file, synced, then a hard link, which fails if the name is taken
    object stores    a conditional put (S3: `If-None-Match: *`), and what fsspec calls mode "create"
    others           looked for, then written: two writers in the same instant may both make it,
                     which is warned of, once for each store

Whether an answer was lost on the way is told by what the file says: whoever makes one puts
something into it that nobody else does.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import logging
import os
from typing import Any, Final
from uuid import uuid4

from fsspec.implementations.local import LocalFileSystem

from .transient import status_codes

_log = logging.getLogger("strom")

_CONDITIONAL: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "memory"})
"""Protocols whose `pipe_file` with mode "create" fails if there is such a file."""

_warned_of: set[str] = set()
"""Stores of which this process has said that they make no file exclusively."""

_REFUSALS: Final = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict"})
_REFUSED: Final = (
    *("PreconditionFailed", "Precondition Failed", "ConditionalRequestConflict"),
    "pre-conditions you specified did not hold",
)
"""In what errors say that libraries have made of others."""

_MOST_CAUSES: Final = 8

_UNSUPPORTED: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)


def makes_exclusively(filesystem: Any) -> bool:
    """Whether `create` never succeeds for two writers."""
    if isinstance(filesystem, LocalFileSystem):
        return True
    protocols = filesystem.protocol
    names = {protocols} if isinstance(protocols, str) else set(protocols)
    return bool(names & _CONDITIONAL) and _takes_mode(filesystem)


def create(filesystem: Any, path: str, data: bytes) -> bool:
    """Make the file, whole, in a folder that is there; False if there is one of this name. Raises
    what the filesystem does; the file may have been made then."""
    if isinstance(filesystem, LocalFileSystem):
        return _linked(path, data)
    if makes_exclusively(filesystem):
        try:
            filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            if _is_refusal(error):
                return False
            if not _is_unknown(error):
                raise
        else:
            return True
    _warn_of(filesystem, path)
    filesystem.invalidate_cache(path)
    try:
        filesystem.info(path)
    except FileNotFoundError:
        filesystem.pipe_file(path, data)
        return True
    return False


def _warn_of(filesystem: Any, path: str) -> None:
    store = _store(filesystem, path)
    if store in _warned_of:
        return
    _warned_of.add(store)
    _log.warning(
        "%s cannot make a file only if there is none: whose checkpoints and output folders are, is "
        "looked for there and then written, so of two jobs or coordinators that start in the same "
        "instant both may go on. Start only one at a time, or use a store with conditional puts",
        store,
    )


def _store(filesystem: Any, path: str) -> str:
    """For people: protocol and server, or bucket, without what the filesystem is opened with."""
    protocols = filesystem.protocol
    protocol = protocols if isinstance(protocols, str) else protocols[0]
    server = getattr(filesystem, "host", None) or path.lstrip("/").partition("/")[0]
    return f"the store '{protocol}://{server}'"


def _linked(path: str, data: bytes) -> bool:
    temporary = f"{path}.{uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            return _opened(path, data)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _opened(path: str, data: bytes) -> bool:
    """On disks without hard links. A reader may find a part of it."""
    try:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    return True


def _takes_mode(filesystem: Any) -> bool:
    call = getattr(filesystem, "_pipe_file", None) or filesystem.pipe_file
    return "mode" in inspect.signature(call).parameters


def _is_refusal(error: Exception) -> bool:
    """Whether a server says that there is such a file, or that another writer is just making it. A
    number in a text says nothing: it may be a part of the path."""
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return False
        told = {str(code) for code in status_codes(found)}
        text = f"{type(found).__name__} {found}"
        if told & _REFUSALS or any(sign in text for sign in _REFUSED):
            return True
        found = found.__cause__
    return False


def _is_unknown(error: Exception) -> bool:
    """Whether a server does not know of conditions."""
    if isinstance(error, (NotImplementedError, ValueError, TypeError)):
        return True
    return "NotImplemented" in f"{type(error).__name__} {error}"
