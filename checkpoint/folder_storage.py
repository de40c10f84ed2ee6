"""One checkpoint or savepoint as a folder by itself, wherever it was moved or copied to.

    <savepoint directory>/savepoint-<first 6 of the job id>-<12 hex>/manifest.json
    <savepoint directory>/savepoint-<first 6 of the job id>-<12 hex>/<data files>

The format is that of a checkpoint, and all paths in the manifest are relative to the folder: its
name and its place say nothing to who reads it. (The first 8 of the hex digits may stand for the job
that the savepoint was taken for: `is_left_to`.) A savepoint is complete in itself; files that an
incremental checkpoint shares with others are looked for where its job has them, in `shared/` beside
the folder.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

from ..core.errors import CheckpointError, ConfigurationError, MissingCheckpointError
from ..core.ids import CheckpointId
from .file_storage import FileStorage
from .manifest import Manifest, decode
from .names import MANIFEST, SHARED, folder_id, is_job_id
from .storage import CheckpointStorage, check_manifest, located
from .transfers import INLINE, Transfers

_ESCAPED: Final = re.compile(r"[^A-Za-z0-9]+")

_MARK: Final = 8


class FolderStorage(FileStorage):
    """The one checkpoint in `folder` (a path of `filesystem`), whatever its id is.

    To read it `manifest()` comes first; to write one, `write_file` from any process and
    `publish` at the end, all with the id that its manifest will have.
    """

    shares = False

    def __init__(self, filesystem: Any, folder: str) -> None:
        folder = folder.rstrip("/") or "/"
        root, name = posixpath.split(folder)
        super().__init__(filesystem, root, "folder")
        self._home = root or "."
        self._shared = posixpath.join(self._home, SHARED)
        self.filesystem = filesystem
        self.folder = folder
        self.name = name

    def manifest(self) -> Manifest:
        """What the folder holds. MissingCheckpointError if it has no manifest, other
        CheckpointErrors if that cannot be read or was altered. Data files are not looked at."""
        path = posixpath.join(self.folder, MANIFEST)
        manifest = decode(self._read(path, MissingCheckpointError), path)
        check_manifest(manifest, manifest.checkpoint_id, path)
        return manifest

    def get(self, name: str) -> bytes:
        """A file of it. MissingCheckpointError if it is not there."""
        return self._read(posixpath.join(self.folder, name), MissingCheckpointError)

    def names(self) -> tuple[str, ...]:
        """Of all that is in it, also of what somebody has not finished writing."""
        return self._names_in(self.folder)

    def put(self, name: str, data: bytes) -> None:
        """Make a file of it, durable, whole or not at all."""
        self.write_file(CheckpointId(0), name, data)
        with self._failing("write", self.folder):
            self._sync_folder(self.folder)

    def publish(self, manifest: Manifest) -> None:
        """As of every storage, and only if its files are here, with their sizes: tasks may have
        written them to a place that has the same name elsewhere."""
        self._check_here(manifest)
        super().publish(manifest)

    def list(self) -> tuple[CheckpointId, ...]:
        """The one there is, once it is published."""
        try:
            return (self.manifest().checkpoint_id,)
        except MissingCheckpointError:
            return ()

    def forget(self, epochs: bool = True) -> None:
        """Nothing: what is around the folder is not this job's."""

    def _check_here(self, manifest: Manifest) -> None:
        files = [h for h in manifest.files() if h.inline is None]
        if not files:
            return
        wanted = {h.path: h.end for h in sorted(files, key=lambda h: h.end)}
        with self._failing("list", self.folder):
            found = self._retried(self._found)
            sizes = {posixpath.relpath(path, self.folder): i["size"] for path, i in found.items()}
            for name in wanted.keys() - sizes.keys():  # a listing may be late
                path = posixpath.join(self.folder, name)
                with contextlib.suppress(FileNotFoundError):
                    sizes[name] = self._retried(lambda path=path: self._fs.info(path))["size"]  # type: ignore[misc]
        for name, size in sorted(wanted.items()):
            if sizes.get(name) != size:
                raise CheckpointError(
                    f"{self.folder}: the file {name} of {size} bytes is not there (found: "
                    f"{sizes.get(name, 'none')}): the folder must be one that all tasks reach"
                )

    def _found(self) -> dict[str, Any]:
        self._fs.invalidate_cache(self.folder)
        try:
            found: dict[str, Any] = self._fs.find(self.folder, detail=True)
        except FileNotFoundError:
            return {}
        return found

    def _path(self, checkpoint_id: CheckpointId, name: str = "") -> str:
        return posixpath.join(self.folder, name) if name else self.folder


def savepoint_location(directory: str, job_id: str, successor: str | None = None) -> str:
    """A new folder for a savepoint of the job, below an fsspec URL or path. `successor`: the job
    that it is taken for, and which will own it; see `is_left_to`."""
    short = _ESCAPED.sub("", job_id)[:6] or "job"
    number = uuid4().hex[:12]
    if successor is not None:
        number = _mark_of(successor) + number[_MARK:]
    return f"{directory.rstrip('/')}/savepoint-{short}-{number}"


def is_left_to(successor: str, location: str) -> bool:
    """Whether the savepoint there was taken for this job, which takes the place of its own."""
    return (
        posixpath.basename(location.rstrip("/")).rpartition("-")[2].startswith(_mark_of(successor))
    )


def _mark_of(job_id: str) -> str:
    """Hex digits that stand for a job."""
    return sha256(job_id.encode()).hexdigest()[:_MARK]


def folder_at(location: str, setting: str = "savepoint") -> FolderStorage:
    """The folder at an fsspec URL or path. ConfigurationError for a URL nobody understands; reads
    and creates nothing yet."""
    return FolderStorage(*located(location, setting))


def open_folder(
    location: str,
    setting: str = "restore_from",
    validate: bool = False,
    transfers: Transfers = INLINE,
) -> tuple[CheckpointStorage, Manifest]:
    """What is at an fsspec URL or path: a savepoint's folder or a checkpoint's, also one that was
    moved, or `<root>/<job id>`, which stands for the newest valid checkpoint in it. With the
    storage that holds its files.

    validate: read the data files, too, not only the manifest. Raises ConfigurationError, naming
    `setting`, if there is nothing of the kind; CheckpointError for what is there and unusable.
    """
    filesystem, path = located(location, setting)
    folder = FolderStorage(filesystem, path)
    try:
        manifest = folder.manifest()
    except MissingCheckpointError as error:
        return _newest_of_job(folder, location, setting, validate, error, transfers)
    storage = _beside_its_job(folder, manifest)
    if validate:
        storage.verify(manifest, transfers)
    return storage, manifest


def _beside_its_job(folder: FolderStorage, manifest: Manifest) -> CheckpointStorage:
    """A checkpoint that is still where its job put it belongs to the storage of that job."""
    root, job_id = posixpath.split(posixpath.dirname(folder.folder))
    in_place = folder_id(folder.name) == manifest.checkpoint_id and is_job_id(job_id)
    if manifest.savepoint or not in_place:
        return folder
    return FileStorage(folder.filesystem, root, job_id)


def _newest_of_job(
    folder: FolderStorage,
    location: str,
    setting: str,
    validate: bool,
    missing: CheckpointError,
    transfers: Transfers,
) -> tuple[CheckpointStorage, Manifest]:
    if folder_id(folder.name) is None and is_job_id(folder.name):
        storage = FileStorage(folder.filesystem, posixpath.dirname(folder.folder), folder.name)
        latest = storage.latest_valid(validate, transfers=transfers)
        if latest.manifest is not None:
            return storage, latest.manifest
        if latest.rejected:
            reasons = "; ".join(r.reason for r in latest.rejected[:3])
            raise ConfigurationError(
                f"{setting}='{location}': none of its checkpoints is complete and valid ({reasons})"
            ) from missing
    gone = _why_gone(folder, location, setting)
    if gone is not None:
        raise ConfigurationError(gone) from missing
    raise ConfigurationError(
        f"{setting}='{location}': there is no complete checkpoint or savepoint ({missing}); give "
        "the folder of a savepoint, <root>/<job id>/chk-<n>, or <root>/<job id> for the newest"
    ) from missing


def _why_gone(folder: FolderStorage, location: str, setting: str) -> str | None:
    """Why a checkpoint is not where its job put it, as far as its newer ones tell."""
    n = folder_id(folder.name)
    home = posixpath.dirname(folder.folder)
    if n is None or not is_job_id(posixpath.basename(home)):
        return None
    job = FileStorage(folder.filesystem, posixpath.dirname(home), posixpath.basename(home))
    newer = [other for other in job.list() if other > n]
    if not newer:
        return None
    given = posixpath.dirname(location.rstrip("/"))
    return (
        f"{setting}='{location}': its job has removed it, for it keeps only the newest checkpoints "
        f"(num_retained_checkpoints), and has gone on to checkpoint {newer[-1]}: if nobody knows "
        f"that it runs, it may still do so. To start from its newest one, give {given}; who starts "
        "from there takes over, and that job publishes nothing more"
    )
