"""What all processes of a job have said, from all nodes, in the order of time.

This is the seam for whoever shows logs: the command line, a server, a program. A page is a bounded
number of lines and a cursor, which is text; given back, it goes on there. Nobody has to keep
anything open: pages are read from the files of each node by a small task there, so that jobs whose
processes are gone are read as those that run.

    logs = JobLogs(job_id)
    page = logs.read(None, LogFilter(operator="orders", level="WARNING"))
    page.entries        # dicts, as `logs.records` says
    page = logs.read(page.cursor, ...)
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ...core.errors import ConfigurationError
from ...core.failure_text import described
from ...logs.files import log_folder, name_of
from ...logs.filters import LogFilter
from ...logs.reading import Cursor, FolderPage, Places, ends_of, merged, read_folder
from ...logs.records import Entry

PAGE: Final = 1_000
"""Lines of a page, if the reader does not say."""

MOST: Final = 10_000

ANSWER_S: Final = 20.0
"""How long a node may take; one that does not answer is missing from the page."""

TAIL_BYTES: Final = 128 << 10
"""Of each process, in which the last lines are looked for; of all on a machine 4 MiB."""

MOST_ROUNDS: Final = 4
"""So often the nodes are asked for the last lines, where more are written meanwhile."""

LARGEST: Final = 1 << 60
"""No file has so many bytes."""

_ARCHIVE: Final = "archive"
"""In cursors, the folder of what is kept of a job without files."""


@dataclass(frozen=True)
class LogPage:
    """`cursor`: where to go on. `more`: whether there are more lines already. `missing`: nodes that
    could not be asked, and why; their lines come once they answer, later than they should."""

    entries: list[Entry]
    cursor: str
    more: bool
    missing: dict[str, str]


class JobLogs:
    """Of one job. Calls block, for seconds at most; from any thread. With Ray connected it asks all
    nodes, without it this machine alone."""

    def __init__(
        self,
        job_id: str,
        archived: Callable[[], list[Entry]] | None = None,
        directory: str | None = None,
    ) -> None:
        """`archived`: what is left of a job of which no files are found. `directory`: where the job
        keeps them, if the usual place does not lead there any more."""
        if not job_id or "/" in job_id or job_id.startswith("."):
            raise ConfigurationError(f"'{job_id}' is no id of a job")
        self._job_id = job_id
        self._archived = archived
        self._directory = directory

    def read(
        self, cursor: str | None, wanted: LogFilter | None = None, limit: int = PAGE
    ) -> LogPage:
        """The next lines behind the cursor (None: from the beginning), `limit` at most.
        ConfigurationError for a cursor that is none."""
        before = _opened(cursor)
        pages, missing = self._ask(before, wanted or LogFilter(), None)
        limit = max(1, min(limit, MOST))
        if not pages and not missing and self._archived is not None:
            return self._kept(before, wanted or LogFilter(), limit)
        entries, after, more = merged(pages, limit)
        return LogPage(entries, _sealed({**before, **after}), more, missing)

    def tail(self, count: int, wanted: LogFilter | None = None) -> LogPage:
        """The last lines, `count` at most, of those in the last `TAIL_BYTES` of each process; the
        cursor stands behind them."""
        wanted = wanted or LogFilter()
        pages, missing = self._ask({}, wanted, TAIL_BYTES)
        if not pages and not missing and self._archived is not None:
            lines = [one for one in self._archived() if wanted.takes(one)]
            cursor = {_ARCHIVE: {"lines": LARGEST}}
            return LogPage(lines[max(0, len(lines) - count) :], _sealed(cursor), False, {})
        entries, after, more = merged(pages, sum(len(page.lines) for page in pages))
        for _ in range(MOST_ROUNDS):
            if not more:
                break
            pages, _ = self._ask(after, wanted, None)
            further, after, more = merged(pages, MOST)
            entries = [*entries, *further][-max(count, 1) :]
        last = entries[-count:] if count > 0 else []
        return LogPage(last, _sealed(after), more, missing)

    def _kept(self, before: Cursor, wanted: LogFilter, limit: int) -> LogPage:
        """A page of what is archived; places are numbers of lines."""
        start = before.get(_ARCHIVE, {}).get("lines", 0)
        lines = [] if self._archived is None or start == LARGEST else self._archived()
        entries: list[Entry] = []
        at = min(start, len(lines))
        while at < len(lines) and len(entries) < limit:
            entries += [lines[at]] if wanted.takes(lines[at]) else []
            at += 1
        more = at < len(lines)
        return LogPage(entries, _sealed({_ARCHIVE: {"lines": at if more else LARGEST}}), more, {})

    def _ask(
        self, cursor: Cursor, wanted: LogFilter, tail: int | None
    ) -> tuple[list[FolderPage], dict[str, str]]:
        found: dict[str, FolderPage] = {}
        missing: dict[str, str] = {}
        for node, answer in _of_nodes(self._job_id, cursor, wanted, tail, self._directory):
            if isinstance(answer, FolderPage):
                found[answer.folder] = answer  # two nodes of one machine have the same
            elif answer is not None:
                missing[node] = answer
        return list(found.values()), missing


def read_here(
    job_id: str, cursor: Cursor, wanted: LogFilter, tail: int | None, directory: str | None = None
) -> FolderPage | None:
    """What this machine has. `tail`: begin so many bytes before the end of each process's."""
    folder = log_folder(job_id)
    name = name_of(folder)
    if name is None and directory is not None:
        folder = Path(directory) / job_id
        name = name_of(folder)
    if name is None:
        return None
    places: Places = cursor.get(name, {}) if tail is None else ends_of(folder, tail)
    page = read_folder(folder, places, wanted)
    if page is not None and tail is not None:
        page.lines = page.lines[-MOST:]
    return page


def _of_nodes(
    job_id: str, cursor: Cursor, wanted: LogFilter, tail: int | None, directory: str | None
) -> Iterator[tuple[str, FolderPage | str | None]]:
    """By node: what it has, or why it cannot be asked."""
    import ray

    asked_for = (job_id, cursor, wanted, tail, directory)
    here = read_here(*asked_for)
    if here is not None:
        yield "this machine", here
    if not ray.is_initialized():
        return
    mine = None if here is None else ray.get_runtime_context().get_node_id()
    asked = [
        (node["NodeManagerHostname"], _ask_node(node["NodeID"], asked_for))
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != mine
    ]
    if not asked:
        return
    done, _ = ray.wait([ref for _, ref in asked], num_returns=len(asked), timeout=ANSWER_S)
    for node, ref in asked:
        if ref not in done:
            with suppress(Exception):  # it is not needed any more
                ray.cancel(ref)
            yield node, f"it did not answer within {ANSWER_S:.0f} s"
            continue
        try:
            yield node, ray.get(ref)
        except Exception as error:
            yield node, described(error)


@cache
def _read_there() -> Any:
    """One function to Ray, which keeps each that it is given for as long as the cluster lives."""
    import ray

    return ray.remote(read_here)


def _ask_node(node: str, asked_for: tuple[Any, ...]) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = _read_there().options(num_cpus=0, max_retries=0, scheduling_strategy=there)
    return task.remote(*asked_for)


_UNREADABLE: Final = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


def _sealed(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(cursor).encode())).decode()


def _opened(text: str | None) -> Cursor:
    """What a reader gives back is looked at: it may come from anywhere."""
    if text is None:
        return {}
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.urlsafe_b64decode(text), 1 << 22)
        found = json.loads(data)
        return {
            str(folder): {str(file): min(max(0, int(at)), LARGEST) for file, at in places.items()}
            for folder, places in found.items()
        }
    except (*_UNREADABLE, zlib.error, binascii.Error) as error:
        raise ConfigurationError(f"no page of logs has this cursor ({error})") from None
