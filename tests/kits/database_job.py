"""One subtask whose keyed state is in RocksDB, beside a model of it in dicts, through checkpoints
of which some fail."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from strom.checkpoint.databases import inherited
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.checkpoint.shared_files import SharedFiles
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.ids import NO_CHECKPOINT, CheckpointId, OperatorId, TaskId, VertexId
from strom.core.state_config import StateConfig
from strom.snapshots.stored import StoredStates
from strom.state.backend import AccColumn
from strom.state.key_groups import range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.value_store import ValueStore

OPERATOR, TASK = OperatorId("op"), TaskId(VertexId("op"), 0)
MOST = 8
"""Max parallelism."""
SMALL = StateConfig("rocksdb", memory=8 << 20, rocksdb_share=1 - 4e-4)
"""Some kilobytes of cache: most is in RocksDB, some is not."""

VALUE = ValueStateDescriptor("value")
LIST = ListStateDescriptor("list")
MAP = MapStateDescriptor("map")
LASTING = ListStateDescriptor("lasting")
LASTING.enable_time_to_live(StateTtlConfig.new_builder(timedelta(days=1)).build())
SCHEMA = pa.schema([("k", pa.int64())])
COLUMNS = (AccColumn("n", "int64"), AccColumn("x", "float64", 0.5))

TEXTS = (AccColumn("n", "int64"), AccColumn("text", "int64", -1))
STORES = {"text": lambda: ValueStore(pa.string())}

Held = dict[str, dict[Any, Any]]


@dataclass(frozen=True)
class Own:
    """A key that has no bytes in RocksDB."""

    number: int


class Job:
    """One subtask, its model, and the checkpoints that are complete."""

    def __init__(self, folder: Path, config: StateConfig = SMALL) -> None:
        self.storage = open_storage(str(folder), "job")
        self.config = config
        self.model: Held = {
            "value": {},
            "spaced": {},
            "list": {},
            "map": {},
            "lasting": {},
            "table": {},
            "texts": {},
            "objects": {},
        }
        self.shared = SharedFiles()
        self.n = 0
        self.base: tuple[Manifest, Held] | None = None
        self.kept: list[CheckpointId] = []
        self.written = 0
        self.start([])

    def start(self, tables: list[Any], files: Any = None) -> None:
        self.states = KeyedStates(self.config)
        self.backend = self.states.make(range_for(0, 1, MOST), MOST)
        if files is not None:
            self.backend.inherit(files)
        self.backend.restore(tables)
        self.increments = Increments()

    def restart(self, in_place: bool, same_program: bool = True) -> None:
        """From the newest complete checkpoint."""
        assert self.base is not None
        self.states.close()
        manifest, model = self.base
        self.model = {name: copy.deepcopy(held) for name, held in model.items()}
        share = (self.storage, manifest, OPERATOR, 0, 1, MOST)
        files = inherited(*share, same_program=same_program) if in_place else None
        tables, _ = read_operator(*share, inherits=files is not None)
        self.start(tables, files)

    def step(self, rng: random.Random) -> None:
        """A batch."""
        self.backend.time.begin(1)
        key = rng.randrange(60)
        what = rng.random()
        if what < 0.1:
            self._step_texts(rng)
            return
        if what < 0.15:
            self._step_objects(rng)
            return
        if what < 0.3:
            table = self.backend.table("table", SCHEMA, COLUMNS, cold=True).table()
            keys = sorted({rng.randrange(400) for _ in range(rng.randrange(1, 60))})
            slots = table.slots(pa.RecordBatch.from_arrays([pa.array(keys)], schema=SCHEMA))
            table.column("n")[slots] += 1
            for k in keys:
                self.model["table"][k] = self.model["table"].get(k, 0) + 1
            return
        self.backend.set_current_key(key)
        if what < 0.6:
            state = self.backend.get_state(VALUE)
            assert state.value() == self.model["value"].get(key)
            new = None if rng.random() < 0.2 else [key, rng.randrange(1000), "x" * 50]
            state.update(new)
            self._set("value", key, new)
        elif what < 0.8:
            space = rng.randrange(4)
            state = self.backend.namespaced(ValueStateDescriptor("spaced")).of(space)
            assert state.value() == self.model["spaced"].get((space, key))
            new = None if rng.random() < 0.3 else rng.randrange(1000)
            state.update(new)
            self._set("spaced", (space, key), new)
        elif what < 0.87:
            self._step_list(rng, key, LASTING)
        elif what < 0.94:
            self._step_list(rng, key, LIST)
        else:
            self._step_map(rng, key)

    def _step_texts(self, rng: random.Random) -> None:
        table = self.backend.table("texts", SCHEMA, TEXTS, values=STORES, cold=True).table()
        keys = sorted({rng.randrange(200) for _ in range(rng.randrange(1, 30))})
        slots = table.slots(pa.RecordBatch.from_arrays([pa.array(keys)], schema=SCHEMA))
        new = [None if rng.random() < 0.2 else f"{k}-{self.n}" * rng.randrange(9) for k in keys]
        codes = table.stores["text"].append(pa.array(new, pa.large_string()))
        table.column("n")[slots] += 1
        table.column("text")[slots] = [
            -1 if n is None else c for n, c in zip(new, codes, strict=True)
        ]
        table.tidy()
        held = self.model["texts"]
        for k, text in zip(keys, new, strict=True):
            held[k] = (held.get(k, (0,))[0] + 1, text)

    def _step_objects(self, rng: random.Random) -> None:
        """Keys that are objects, some of them such as have no bytes."""
        keys = sorted({rng.randrange(100) for _ in range(rng.randrange(1, 20))})
        named = [Own(k) if k % 10 == 0 else (k, "name") for k in keys]
        coded = self.backend.object_keys("operator 'op'").column(named)
        schema = pa.schema([("k", coded.type)])
        table = self.backend.table("objects", schema, COLUMNS, cold=True).table()
        slots = table.slots(pa.RecordBatch.from_arrays([coded], schema=schema))
        table.column("n")[slots] += 1
        for k in named:
            self.model["objects"][k] = self.model["objects"].get(k, 0) + 1

    def _step_list(self, rng: random.Random, key: int, descriptor: ListStateDescriptor) -> None:
        state, model = self.backend.get_list_state(descriptor), self.model[descriptor.name]
        match rng.randrange(8):
            case 0:
                assert list(state.get()) == model.get(key, [])
            case 1:
                state.clear()
                model.pop(key, None)
            case 2:
                state.update([key, self.n])
                model[key] = [key, self.n]
            case _:
                state.add(key)
                model.setdefault(key, []).append(key)

    def _step_map(self, rng: random.Random, key: int) -> None:
        state, model = self.backend.get_map_state(MAP), self.model["map"]
        own = rng.randrange(5)
        match rng.randrange(8):
            case 0:
                assert list(state.items()) == list(model.get(key, {}).items())
            case 1:
                state.clear()
                model.pop(key, None)
            case 2 | 3:
                state.remove(own)
                model.get(key, {}).pop(own, None)
                if not model.get(key):
                    model.pop(key, None)
            case _:
                state.put(own, self.n)
                model.setdefault(key, {})[own] = self.n

    def _set(self, name: str, key: Any, new: Any) -> None:
        if new is None:
            self.model[name].pop(key, None)
        else:
            self.model[name][key] = new

    def checkpoint(self, rng: random.Random, fails: bool) -> None:
        self.n += 1
        n = CheckpointId(self.n)
        base = NO_CHECKPOINT if self.base is None else self.base[0].checkpoint_id
        increment = self.increments.begin(n, base)
        frozen = self.backend.snapshot(increment.since(OPERATOR))
        model = {
            name: {k: v.copy() if isinstance(v, list | dict) else v for k, v in held.items()}
            for name, held in self.model.items()
        }
        for _ in range(rng.randrange(6)):  # the asynchronous part comes when it comes
            self.step(rng)
        part = [(OPERATOR, frozen, None)]
        made = write_subtask(
            self.storage, n, TASK, part, layers=increment.layers, files=increment.files
        )
        self.increments.written(n, made)
        if fails:
            self._remove(n)
            return
        manifest = decode(encode(manifest_of(n, made)), "manifest")
        self.shared.completed(n, manifest.shared)
        self.storage.publish(manifest)
        self.written = manifest.new_size
        self.base = (manifest, model)
        self.kept.append(n)
        while len(self.kept) > 2:
            self._remove(self.kept.pop(0))

    def _remove(self, n: CheckpointId) -> None:
        self.storage.delete(n)
        gone = self.shared.discarded(n, self.storage.list_shared())
        self.storage.delete_shared(gone)
        self.shared.removed(gone)
        self.shared.validate()

    def check(self) -> None:
        """Every complete checkpoint can be read, and no file is left over."""
        manifests = [self.storage.load(n) for n in self.storage.list()]
        for manifest in manifests:
            self.storage.verify(manifest)
        assert set(self.storage.list_shared()) == set().union(*(m.shared for m in manifests))
        assert self.base is not None
        stored = StoredStates(self.storage, self.base[0], "checkpoint")
        for name in ("value", "spaced", "table", "texts", "objects"):
            if self.base[1][name]:
                rows = stored.keyed(OPERATOR, name).data.num_rows
                assert rows == len(self.base[1][name]), name
        for parallelism in (1, 3):
            found = held_in(self.storage, self.base[0], parallelism)
            assert found == self.base[1]
            for key, entries in found["map"].items():
                assert list(entries) == list(self.base[1]["map"][key])


def manifest_of(n: CheckpointId, made: SubtaskSnapshot) -> Manifest:
    return Manifest("job", "job", n, 0, (OperatorShape(OPERATOR, "op", 1, MOST),), (made,))


def held_in(storage: CheckpointStorage, manifest: Manifest, parallelism: int) -> Held:
    """As states in memory have it that were restored at this parallelism."""
    found: Held = {"value": {}, "spaced": {}, "list": {}, "map": {}, "lasting": {}}
    found |= {"table": {}, "texts": {}, "objects": {}}
    for subtask in range(parallelism):
        tables, _ = read_operator(storage, manifest, OPERATOR, subtask, parallelism, MOST)
        backend = MemoryKeyedStateBackend(range_for(subtask, parallelism, MOST), MOST)
        backend.restore(tables)
        taken = held_by(backend)
        for name, held in taken.items():
            assert not found[name].keys() & held.keys()
            found[name] |= held
    return found


def held_by(backend: Any) -> Held:
    found: Held = {"value": {}, "spaced": {}, "list": {}, "map": {}, "lasting": {}}
    found |= {"table": {}, "texts": {}, "objects": {}}
    backend.get_state(VALUE)
    backend.namespaced(ValueStateDescriptor("spaced"))
    backend.get_list_state(LIST)
    backend.get_map_state(MAP)
    backend.get_list_state(LASTING)
    table = backend.table("table", SCHEMA, COLUMNS).table()
    if len(table):
        numbers = table.column("n")[table.find(table.keys())]
        found["table"] = dict(
            zip(table.keys().column(0).to_pylist(), numbers.tolist(), strict=True)
        )
    objects = backend.object_keys("operator 'op'")
    own = backend.table("objects", pa.schema([("k", objects.kind)]), COLUMNS).table()
    if len(own):
        keys = own.keys()
        numbers = own.column("n")[own.find(keys)].tolist()
        found["objects"] = dict(zip(objects.objects(keys.column(0)), numbers, strict=True))
    texts = backend.table("texts", SCHEMA, TEXTS, values=STORES).table()
    if len(texts):
        at = texts.find(texts.keys())
        said = texts.stores["text"].take(texts.column("text")[at]).to_pylist()
        pairs = zip(texts.column("n")[at].tolist(), said, strict=True)
        found["texts"] = dict(zip(texts.keys().column(0).to_pylist(), pairs, strict=True))
    for key in range(60):
        backend.set_current_key(key)
        value = backend.get_state(VALUE).value()
        if value is not None:
            found["value"][key] = value
        items = list(backend.get_list_state(LIST).get() or ())
        if items:
            found["list"][key] = items
        items = list(backend.get_list_state(LASTING).get())
        if items:
            found["lasting"][key] = items
        entries = dict(backend.get_map_state(MAP).items())
        if entries:
            found["map"][key] = entries
        for space in range(4):
            value = backend.namespaced(ValueStateDescriptor("spaced")).of(space).value()
            if value is not None:
                found["spaced"][space, key] = value
    return found
