"""Names of things in a checkpoint storage, and why a path in a manifest is not simply believed.

    <root>/<job id>/chk-<n>/manifest.json
    <root>/<job id>/chk-<n>/<data files>
    <root>/<job id>/shared/<n>-<data files>         files that later checkpoints may use, too

A manifest is read from a place that others can write: its paths must stay inside its own folder, or
be names in its job's shared folder.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import xxhash

from ..core.errors import CheckpointError, ConfigurationError, CorruptCheckpointError
from ..core.ids import CheckpointId, OperatorId

UNFINISHED: Final = ".tmp"
"""How names of files end that are being written."""

MANIFEST: Final = "manifest.json"
SHARED: Final = "shared"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FOLDER = re.compile(r"chk-([1-9][0-9]{0,18})")
_SHARED = re.compile(r"([1-9][0-9]{0,18})-[A-Za-z0-9._-]{1,240}")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


def is_job_id(name: str) -> bool:
    """Whether a job's folder can have this name."""
    return _JOB_ID.fullmatch(name) is not None


def check_job_id(job_id: str) -> str:
    """The job id, if it can be a folder's name; else ConfigurationError."""
    if not is_job_id(job_id):
        raise ConfigurationError(
            f"job id {job_id!r} must start with a letter or digit and hold only letters, digits, "
            "'.', '_' and '-' (at most 128)"
        )
    return job_id


def folder_name(checkpoint_id: CheckpointId) -> str:
    return f"chk-{checkpoint_id}"


def folder_id(name: str) -> CheckpointId | None:
    """The checkpoint whose folder has this name, None for any other name."""
    match = _FOLDER.fullmatch(name)
    return CheckpointId(int(match[1])) if match else None


def check_file_name(name: str) -> str:
    """The name, if a data file may have it; else CheckpointError."""
    if not _is_data_path(name) or "/" in name:
        raise CheckpointError(
            f"'{name}' cannot name a checkpoint file: letters, digits, '.', '_' and '-' only, "
            f"and not '{MANIFEST}'"
        )
    return name


def shared_name(checkpoint_id: CheckpointId, name: str) -> str:
    """What a data file of this checkpoint is called among the shared ones."""
    return f"{checkpoint_id}-{check_file_name(name)}"


def was_written_by(name: str) -> CheckpointId | None:
    """The checkpoint that wrote a shared file, or has not finished writing it; None for any other
    name."""
    match = _SHARED.fullmatch(name)
    return CheckpointId(int(match[1])) if match else None


def shared_by(name: str) -> CheckpointId:
    """`was_written_by` of what must be such a name; else CorruptCheckpointError."""
    found = was_written_by(name)
    if found is None:
        raise CorruptCheckpointError(f"{name!r} is no name of a shared file <checkpoint>-<name>")
    return found


def check_handle_path(path: str, where: str, shared: bool = False) -> str:
    """The path, if it stays inside the checkpoint's folder (`shared`: the job's folder of shared
    files); else CorruptCheckpointError."""
    if shared:
        if was_written_by(path) is None or path.endswith(UNFINISHED):
            raise CorruptCheckpointError(f"{where}: {path!r} is no name of a shared file")
        return path
    if not _is_data_path(path):
        raise CorruptCheckpointError(
            f"{where}: file path {path!r} leaves the checkpoint's folder or is no data file's name"
        )
    return path


@lru_cache(maxsize=4096)
def safe_name(operator: OperatorId) -> str:
    """A file name part for an operator id: readable, and distinct for distinct ids."""
    readable = _UNSAFE.sub("-", operator).strip("-")[:40] or "operator"
    return f"{readable}-{xxhash.xxh64_hexdigest(operator.encode())[:8]}"


def _is_data_path(path: str) -> bool:
    parts = path.split("/")
    return path != MANIFEST and all(_PART.fullmatch(part) for part in parts)
