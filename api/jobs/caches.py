"""Streams that are kept when a job has run, and read by later jobs of the environment.

    stream.cache() -> an operator that passes records on                   NEW
    first job that reads it: its graph gets a sink beside that operator    being produced by a job
    that job has finished: the operator is a source over what was kept     KEPT

An entry is looked at whenever a graph is built. Only a job that finished makes its records count,
and only while the store still has all of them: else the operator passes records on again, and the
next job makes them anew. Which records a token stands for never changes: each production gets a
token of its own, so nothing of a job that failed can come into what a later one kept.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError, StromError
from ...core.failure_text import described
from ...core.job_status import JobStatus
from ...engine.graph.transformation import Input, Transformation
from ..connectors.cached_parts import CacheStore
from ..specs.records import PassSpec, SinkSpec, SourceSpec
from ..types.declared import Declared, Scalars
from .host import Host, JobClient

_log = logging.getLogger("strom")


@dataclass(eq=False)
class CacheEntry:
    """One cached stream. Invariant: at most one of `producer` and `kept` is set, and `node` is a
    source exactly if `kept` is."""

    node: Transformation
    inputs: tuple[Input, ...]
    """What the stream is made of while it is not kept."""
    declared: Declared | None
    """What the records are, if it is known."""
    producer: tuple[str, JobClient] | None = None
    """The token under which a job keeps the records, and the job."""
    kept: str | None = None
    """The token of records that are complete."""

    def read(self, token: str, store: CacheStore) -> None:
        self.kept, self.producer = token, None
        columns = self.declared if isinstance(self.declared, pa.Schema) else None
        scalars = self.declared if isinstance(self.declared, Scalars) else None
        self.node.spec = SourceSpec(store.source(token, columns), None, scalars)
        self.node.inputs, self.node.is_source = (), True

    def forget(self) -> None:
        """The next job makes the records anew."""
        self.kept = self.producer = None
        self.node.spec = PassSpec(self.declared)
        self.node.inputs, self.node.is_source = self.inputs, False


class Caches:
    """The cached streams of one environment."""

    def __init__(self, host: Callable[[], Host]) -> None:
        """`host` opens the environment's host if it is not open."""
        self._host = host
        self._entries: dict[int, CacheEntry] = {}
        """By the id of their nodes."""
        self._store: CacheStore | None = None
        """Of the open host, once one of its jobs is to keep something."""

    def add(self, node: Transformation, declared: Declared | None) -> None:
        """`node` is a new operator of PassSpec, and the id behind its own is left free."""
        self._entries[node.id] = CacheEntry(node, node.inputs, declared)

    def resolve(self, operators: Iterable[Transformation], restored: bool) -> list[Transformation]:
        """The operators, and a sink for each cached stream among what they read that this job is to
        keep; such streams as are kept become sources. `restored`: the job starts from a checkpoint,
        so it does not see all records, and its sinks keep nothing."""
        found = list(operators)
        if not self._entries:
            return found
        for entry in self._reached(found):
            if entry.kept is None and entry.producer is None:
                found.append(self._sink(entry, None if restored else uuid.uuid4().hex))
        return found

    def seen(self, operators: Iterable[Transformation]) -> list[Transformation]:
        """The operators as they are, of which cached streams that are kept are sources."""
        found = list(operators)
        self._reached(found)
        return found

    def submitted(self, specs: Iterable[Any], client: JobClient) -> None:
        """The job of these operators runs: what it keeps is known once it has finished."""
        tokens = {}
        for spec in specs:
            token = getattr(spec.sink, "cache_token", None) if isinstance(spec, SinkSpec) else None
            if token is not None:
                tokens[spec.sink.cached_node] = token
        for entry in self._entries.values():
            if entry.node.id in tokens:
                entry.producer = (tokens[entry.node.id], client)

    def invalidate(self, node: Transformation) -> None:
        """Free what is kept of the stream; it is made anew when it is read again. What a job that
        still runs keeps of it will not count."""
        entry = self._entries[node.id]
        token = entry.kept or (entry.producer and entry.producer[0])
        if token is not None and self._store is not None:
            self._store.drop(token)
        entry.forget()

    def close(self) -> None:
        """Free everything that is kept."""
        for entry in self._entries.values():
            entry.forget()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _reached(self, operators: list[Transformation]) -> list[CacheEntry]:
        """The entries whose streams the operators read, up to date, in order. An entry that became
        a source ends the way to what it was made of."""
        found: dict[int, CacheEntry] = {}
        seen: set[int] = set()
        pending = list(operators)
        while pending:
            node = pending.pop()
            if node.id in seen:
                continue
            seen.add(node.id)
            entry = self._entries.get(node.id)
            if entry is not None and entry.node is node:
                self._look(entry)
                found[node.id] = entry
            pending.extend(one.source for one in node.inputs)
        return [found[node_id] for node_id in sorted(found)]

    def _look(self, entry: CacheEntry) -> None:
        """Bring the entry up to date with its producer and its store."""
        if entry.producer is not None:
            token, client = entry.producer
            status = _status(client)
            if status is JobStatus.FINISHED and self._held(token):
                assert self._store is not None
                entry.read(token, self._store)
            elif status is JobStatus.FINISHED:
                self._lose(entry, token)
            elif status is None or status.is_terminal:
                self._drop(token)
                entry.forget()
        elif entry.kept is not None and not self._held(entry.kept):
            self._lose(entry, entry.kept)

    def _lose(self, entry: CacheEntry, token: str) -> None:
        _log.warning("'%s' is kept no more: this job makes it anew", entry.node.name)
        self._drop(token)
        entry.forget()

    def _held(self, token: str) -> bool:
        return self._store is not None and self._store.holds(token)

    def _drop(self, token: str) -> None:
        if self._store is not None:
            self._store.drop(token)

    def _sink(self, entry: CacheEntry, token: str | None) -> Transformation:
        """Ahead of all else that reads the stream, and may change its records."""
        sink = self._opened().sink(token, entry.node.id)
        node = entry.node
        return replace(
            node,
            id=node.id + 1,
            spec=SinkSpec(sink),
            name=f"Sink: Cache({node.name})",
            inputs=(Input(node),),
            uid=None,
            is_source=False,
            is_sink=True,
        )

    def _opened(self) -> CacheStore:
        if self._store is None:
            host = self._host()
            open_cache = getattr(host, "open_cache", None)
            if open_cache is None:
                raise ConfigurationError(
                    f"cache: the host {host!r} keeps nothing: use the local host or Ray"
                )
            store: CacheStore = open_cache()
            self._store = store
        return self._store


def _status(client: JobClient) -> JobStatus | None:
    """None: nobody knows any more how the job ended."""
    try:
        return client.get_job_status()
    except StromError as error:
        _log.info("a job that was to keep a stream cannot be asked: %s", described(error))
        return None
