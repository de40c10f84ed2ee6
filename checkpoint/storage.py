"""Where checkpoints are kept: what every storage promises, and the one in memory.

A checkpoint becomes visible by the publication of its manifest, which comes last and is atomic.
Until then its files are leftovers that nobody reads. Nothing is believed when read: sizes and
checksums are compared, and what does not agree raises CorruptCheckpointError naming file, expected
and found. What cannot be read or written (permissions, disk full, network) is a CheckpointError.

Tasks call `write_file` and `read_file`, from any process and thread; the coordinator's host
calls the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import xxhash

from ..core.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    MissingCheckpointError,
)
from ..core.ids import NO_CHECKPOINT, CheckpointId
from .cancellation import Cancellation
from .downloads import Downloads
from .epochs import KEPT, Tenant
from .handles import FileHandle
from .manifest import Manifest
from .names import check_file_name, check_handle_path, check_job_id, folder_name
from .secrets import check_no_secrets
from .transfers import INLINE, Transfers

Data: TypeAlias = "bytes | pa.Buffer"


@dataclass(frozen=True)
class Rejected:
    """A checkpoint that cannot be restored from, and why. `unpublished`: it has no manifest, as
    one that never completed."""

    checkpoint_id: CheckpointId
    reason: str
    unpublished: bool = False


@dataclass(frozen=True)
class Latest:
    """The newest valid checkpoint if there is one, the newer ones found unusable (newest first),
    and the ids of everything in the storage, ascending. `torn`: of these the older ones without a
    manifest, which never completed or are half removed, those that do not count (`epochs`), and
    those of which nobody knows."""

    manifest: Manifest | None
    rejected: tuple[Rejected, ...] = ()
    ids: tuple[CheckpointId, ...] = ()
    torn: tuple[CheckpointId, ...] = ()

    @property
    def highest_id(self) -> int:
        """The highest id used by any checkpoint, complete or not; 0 if there is none."""
        return max(self.ids, default=0)

    @property
    def never_usable(self) -> tuple[CheckpointId, ...]:
        """Those that nobody can ever restore from, whatever is mended: `torn` ones, and newer ones
        without a manifest."""
        return (*self.torn, *(one.checkpoint_id for one in self.rejected if one.unpublished))


class CheckpointStorage(ABC):
    """The checkpoints of one job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = check_job_id(job_id)

    shares = False
    """Whether files can be shared by checkpoints. Where they cannot, each holds all of its own."""

    packs = False
    """Whether small files are better written as one (`packing`): where each costs a request."""

    copies = False
    """Whether it is worth while to keep copies of its files where they were written."""

    @abstractmethod
    def write_file(
        self, checkpoint_id: CheckpointId, name: str, data: Data, shared: bool = False
    ) -> FileHandle:
        """Make `data` durable as a file of a checkpoint not yet published. `name` has no slash
        and is written once. `shared`: later checkpoints may use it, too, if the storage `shares`.
        Raises CheckpointError; then nothing of the file is left."""

    def write_stream(
        self,
        checkpoint_id: CheckpointId,
        name: str,
        write: Callable[[Any], None],
        shared: bool = False,
        cancellation: Cancellation | None = None,
    ) -> FileHandle:
        """As `write_file`, of what `write` writes to the file that it is given, piece by piece; it
        may be called again after a failure. UnwantedError soon after `cancellation` was cancelled;
        nothing of the file is left then either."""
        sink = pa.BufferOutputStream()
        write(sink)
        if cancellation is not None:
            cancellation.check()
        return self.write_file(checkpoint_id, name, sink.getvalue(), shared)

    def offer(self, checkpoint_id: CheckpointId, name: str, shared: bool, source: Path) -> None:
        """A file of this machine has the bytes that `write_stream` is about to be given under this
        name. It never changes, and may be gone when this returns; who can use it links it."""

    def remove_files(self, checkpoint_id: CheckpointId, handles: Iterable[FileHandle]) -> None:
        """Remove files that were written for a checkpoint that will never be published, as far as
        that can be done now; `delete` and `delete_shared` see to the rest."""

    @abstractmethod
    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        """The bytes of a file, found to have the size and checksum of its handle."""

    def link_file(self, checkpoint_id: CheckpointId, handle: FileHandle, path: Path) -> bool:
        """Have a file that nobody ever changes at `path` without copying it, found to be as
        `read_file` would; whether it is there. False: read it."""
        return False

    @abstractmethod
    def publish(self, manifest: Manifest) -> None:
        """Make the checkpoint visible, atomically, after all its files. Raises CheckpointError;
        then it is not visible."""

    def withdraw(self, manifest: Manifest) -> None:
        """Make a checkpoint invisible that was just published, and that nobody was told of; its
        files stay. Raises CheckpointError."""
        self.delete(manifest.checkpoint_id)

    @abstractmethod
    def list(self) -> tuple[CheckpointId, ...]:
        """All checkpoints of which anything exists, published or not, ascending."""

    @abstractmethod
    def load(self, checkpoint_id: CheckpointId) -> Manifest:
        """The manifest, checked against its own checksum, data files not looked at."""

    @abstractmethod
    def delete(self, checkpoint_id: CheckpointId) -> None:
        """Remove a checkpoint, manifest first, but not its shared files. Not an error if there is
        none."""

    def list_shared(self) -> tuple[str, ...]:
        """The names of all shared files, also of those that somebody has not finished writing."""
        return ()

    def delete_shared(self, names: Iterable[str]) -> None:
        """Remove these shared files; not an error if one is not there."""

    def forget(self, epochs: bool = True) -> None:
        """The job is over and its checkpoints are deleted: remove what is left around them, such
        as an empty folder. What is not empty stays; `epochs` False: also where that is all there
        is, for a coordinator of that job may not have looked yet."""

    # --- who may publish (`epochs`) --------------------------------------------------------

    exclusive = True
    """Whether no two coordinators can begin the same epoch."""

    home: str | None = None
    """What `open_storage` finds this storage by, with the job's id; None: it cannot be found."""

    @abstractmethod
    def begin_epoch(self, tenant: Tenant) -> int:
        """Begin the next epoch, behind all others. Raises CheckpointError."""

    @abstractmethod
    def tenants(self, last: bool = False) -> dict[int, Tenant | None]:
        """Who began the epochs there are, `last`: only of the last one; None where that cannot be
        read."""

    @abstractmethod
    def has_epoch(self, epoch: int) -> bool:
        """Whether it has begun, whatever a listing says."""

    kept_epochs = KEPT
    """So many before the last one are known for ever; older ones may be removed."""

    def keeps_epoch(self, epoch: int, tenant: Tenant) -> bool:
        """Whether an epoch that this tenant began is known still, or none is at all. Else it is
        over, and was removed."""
        return True

    def knows_epoch(self, epoch: int) -> bool:
        """Whether it has begun and was not removed, or there is none behind it."""
        return True

    def known_epochs(self, before: int) -> Collection[int]:
        """Those before this one that were not removed, whatever a listing says of the last ones,
        ascending."""
        return range(1, before)

    def remove_epochs(self, before: int, counting: Collection[int]) -> None:
        """Of those before this one nobody will ask any more but who is late: remove who began them,
        the oldest first, and which of their checkpoints count, but for `counting`, of which there
        are checkpoints."""

    @abstractmethod
    def settle(self, epoch: int, last: CheckpointId) -> CheckpointId:
        """Of the checkpoints of this epoch those up to `last` count, unless it is said already
        which do: the last one that does. Raises CheckpointError."""

    @abstractmethod
    def settled(self, epoch: int) -> CheckpointId | None:
        """The last checkpoint of this epoch that counts; None: that is not said, and all do."""

    def check_counts(self, manifest: Manifest) -> None:
        """CorruptCheckpointError for one that does not count."""
        n, epoch = manifest.checkpoint_id, manifest.epoch
        last = self.settled(epoch) if epoch else None
        if last is None and epoch and not self.knows_epoch(epoch):
            last = NO_CHECKPOINT
        if last is not None and n > last:
            raise CorruptCheckpointError(
                f"checkpoint {n} of job {self.job_id} does not count: the coordinator that "
                f"published it, in epoch {epoch}, was fenced then, and who took over went on from "
                f"checkpoint {last or 'none'} of it"
            )

    def own_name(self, name: str) -> str:
        """What a file that is to be called so is called here: coordinators of two epochs may take a
        checkpoint of the same number."""
        return name

    def verify(self, manifest: Manifest, transfers: Transfers = INLINE) -> None:
        """Read every data file; CorruptCheckpointError for the first that is not as recorded."""
        with Downloads(self.read_file, manifest.checkpoint_id, transfers) as files:
            files.want(manifest.files())
            for handle in manifest.files():
                files.read_file(manifest.checkpoint_id, handle)

    def check_present(self, manifest: Manifest, transfers: Transfers = INLINE) -> None:
        """That every data file is there, and long enough, as far as that can be told without
        reading it; else CorruptCheckpointError."""
        self.verify(manifest, transfers)

    def latest_valid(
        self,
        validate: bool = True,
        after: int = 0,
        transfers: Transfers = INLINE,
        trusted: CheckpointId | None = None,
        without: Collection[CheckpointId] = (),
        upto: int | None = None,
    ) -> Latest:
        """The newest usable checkpoint with an id above `after`, and not above `upto`, but for
        those of `without`, which are not looked at.

        validate: read the data files too, not only the manifest, but for those of `trusted`, which
        only have to be there. Corrupt ones are passed over and
        reported; a storage that cannot be read raises CheckpointError (going back to an older
        checkpoint because the disk is away for a second would be a silent guess), and so does a
        checkpoint of another format.
        """
        ids = self.list()
        rejected: list[Rejected] = []
        manifest: Manifest | None = None
        looked_at = [c for c in ids if c > after and (upto is None or c <= upto)]
        for checkpoint_id in reversed([c for c in looked_at if c not in without]):
            try:
                manifest = self.load(checkpoint_id)
                self.check_counts(manifest)
                if validate and checkpoint_id == trusted:
                    self.check_present(manifest, transfers)
                elif validate:
                    self.verify(manifest, transfers)
                break
            except CorruptCheckpointError as error:
                manifest = None
                gone = isinstance(error, MissingCheckpointError)
                rejected.append(Rejected(checkpoint_id, str(error), gone))
        newest = after if manifest is None else manifest.checkpoint_id
        older = [c for c in ids if after < c < newest]
        torn = tuple(c for c in older if c in without or not self._is_complete(c))
        return Latest(manifest, tuple(rejected), ids, torn)

    def _is_complete(self, checkpoint_id: CheckpointId) -> bool:
        """Whether it has a manifest, and not one that does not count."""
        try:
            manifest = self.load(checkpoint_id)
        except MissingCheckpointError:
            return False
        except CorruptCheckpointError:
            return True
        try:
            self.check_counts(manifest)
        except CorruptCheckpointError:
            return False
        return True


class MemoryStorage(CheckpointStorage):
    """Checkpoints in this process: files travel inline in their handles, manifests stay here. No
    files are shared: a handle that was used again would travel again.

    Every process may have its own instance for `write_file` and `read_file`; published checkpoints
    live in the coordinator's.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self._manifests: dict[CheckpointId, Manifest] = {}
        self._tenants: dict[int, Tenant | None] = {}
        self._settled: dict[int, CheckpointId] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a storage to write through, not everything stored so far."""
        return {"job_id": self.job_id, "_manifests": {}, "_tenants": {}, "_settled": {}}

    def write_file(
        self, checkpoint_id: CheckpointId, name: str, data: Data, shared: bool = False
    ) -> FileHandle:
        inline = data if isinstance(data, bytes) else data.to_pybytes()
        return FileHandle(check_file_name(name), len(inline), checksum(inline), inline)

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        where = f"memory:{self.job_id}/{folder_name(checkpoint_id)}/{handle.path}"
        if handle.inline is None:
            raise CorruptCheckpointError(f"{where}: the handle holds no bytes")
        return checked(handle.inline, handle, where)

    def publish(self, manifest: Manifest) -> None:
        check_manifest(manifest, manifest.checkpoint_id, f"memory:{self.job_id}")
        if manifest.checkpoint_id in self._manifests:
            raise CheckpointError(f"checkpoint {manifest.checkpoint_id} is published already")
        self._manifests[manifest.checkpoint_id] = manifest

    def list(self) -> tuple[CheckpointId, ...]:
        return tuple(sorted(self._manifests))

    def load(self, checkpoint_id: CheckpointId) -> Manifest:
        try:
            return self._manifests[checkpoint_id]
        except KeyError:
            raise MissingCheckpointError(
                f"memory:{self.job_id}/{folder_name(checkpoint_id)}: never published"
            ) from None

    def delete(self, checkpoint_id: CheckpointId) -> None:
        self._manifests.pop(checkpoint_id, None)

    def begin_epoch(self, tenant: Tenant) -> int:
        epoch = len(self._tenants) + 1
        self._tenants[epoch] = tenant
        return epoch

    def tenants(self, last: bool = False) -> dict[int, Tenant | None]:
        return dict(sorted(self._tenants.items())[-1 if last else 0 :])

    def has_epoch(self, epoch: int) -> bool:
        return epoch in self._tenants

    def settle(self, epoch: int, last: CheckpointId) -> CheckpointId:
        return self._settled.setdefault(epoch, last)

    def settled(self, epoch: int) -> CheckpointId | None:
        return self._settled.get(epoch)


def open_storage(location: str | None, job_id: str) -> CheckpointStorage:
    """The storage at an fsspec URL or path; None: in memory.

    Raises ConfigurationError for a URL nobody understands. Creates nothing yet.
    """
    if location is None:
        return MemoryStorage(job_id)
    from .file_storage import FileStorage

    filesystem, root = located(location, "checkpoint storage")
    return FileStorage(filesystem, root, job_id)


def located(location: str, setting: str) -> tuple[Any, str]:
    """The filesystem of a URL or path, and the path there (absolute, if it is a local one)."""
    import fsspec

    check_no_secrets(location, setting)
    try:
        filesystem, path = fsspec.core.url_to_fs(location)
    except (ValueError, ImportError) as error:
        raise ConfigurationError(f"{setting} '{location}': {error}") from error
    return filesystem, str(path)


def checksum(data: Data) -> str:
    """xxh64, 16 hex digits."""
    return str(xxhash.xxh64_hexdigest(data))


def checked(data: bytes, handle: FileHandle, where: str) -> pa.Buffer:
    """The bytes as a buffer if they are those of `handle`; `where` names them in the error."""
    check_handle_path(handle.path, where, handle.shared)
    if len(data) != handle.size:
        raise CorruptCheckpointError(f"{where}: expected {handle.size} bytes, found {len(data)}")
    found = checksum(data)
    if found != handle.checksum:
        raise CorruptCheckpointError(f"{where}: expected xxh64 {handle.checksum}, found {found}")
    return pa.py_buffer(data)


def check_manifest(manifest: Manifest, checkpoint_id: CheckpointId, where: str) -> None:
    """That a manifest is the one of `checkpoint_id` and all its paths stay in its folder."""
    if manifest.checkpoint_id != checkpoint_id:
        raise CorruptCheckpointError(
            f"{where}: holds checkpoint {manifest.checkpoint_id}, expected {checkpoint_id}"
        )
    for path, shared in dict.fromkeys([(h.path, h.shared) for h in manifest.files()]):
        check_handle_path(path, where, shared)
