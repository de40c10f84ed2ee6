"""Transformations -> StreamGraph: resolution, ids, validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from strom.core.config import JobConfig
from strom.core.errors import GraphError
from strom.engine.graph.model import Broadcast, Forward, Rebalance, StreamGraph
from strom.engine.graph.operator_ids import uid_operator_id
from strom.engine.graph.stream_graph import build_stream_graph
from strom.engine.graph.transformation import Input, Transformation


@dataclass(frozen=True)
class ReadSpec:
    """Stands for a source."""


@dataclass(frozen=True)
class WorkSpec:
    """Stands for any operator."""


@dataclass(frozen=True)
class OtherSpec:
    """Stands for an operator of another kind."""


class Program:
    """Builds transformations by name; `op("b", "a")` reads the main output of a."""

    def __init__(self) -> None:
        self.nodes: dict[str, Transformation] = {}

    def op(self, name: str, *inputs: str | Input, spec: Any = None, **settings: Any) -> None:
        read = tuple(Input(self.nodes[i]) if isinstance(i, str) else i for i in inputs)
        settings.setdefault("parallelism", 1)
        settings.setdefault("is_source", not read)
        spec = spec or (WorkSpec() if read else ReadSpec())
        self.nodes[name] = Transformation(len(self.nodes), spec, name, read, **settings)

    def build(self, **config: Any) -> StreamGraph:
        return build_stream_graph(self.nodes.values(), "test", JobConfig(**config))

    def ids(self) -> dict[str, str]:
        return {node.name: node.operator_id for node in self.build().nodes}


def linear() -> Program:
    program = Program()
    program.op("read")
    program.op("work", "read")
    program.op("write", "work", is_sink=True)
    return program


def test_default_partitioner_is_forward_between_equals_and_rebalance_otherwise() -> None:
    program = linear()
    program.nodes["read"].parallelism = 2
    graph = program.build(parallelism=2)
    assert [edge.partitioner for edge in graph.edges] == [Rebalance(), Forward()]


def test_partitioner_of_the_input_wins() -> None:
    program = Program()
    program.op("read")
    program.op("write", Input(program.nodes["read"], None, Broadcast()), is_sink=True)
    assert program.build().edges[0].partitioner == Broadcast()


def test_side_output_and_port_reach_the_edge() -> None:
    program = Program()
    program.op("read")
    program.op("write", Input(program.nodes["read"], "late", None, 1), is_sink=True)
    edge = program.build().edges[0]
    assert (edge.tag, edge.port) == ("late", 1)


def test_graph_of_a_sink_reaches_operators_that_are_not_listed() -> None:
    program = linear()
    graph = build_stream_graph([program.nodes["write"]], "again", JobConfig())
    assert [node.name for node in graph.nodes] == ["read", "work", "write"]
    assert [(edge.source, edge.target) for edge in graph.edges] == [(0, 1), (1, 2)]


def test_node_numbers_are_dense_and_topological_whatever_the_creation_ids() -> None:
    program = linear()
    for node in program.nodes.values():
        node.id = node.id * 10 + 7
    graph = build_stream_graph(reversed(program.nodes.values()), "test", JobConfig())
    assert [(node.id, node.name) for node in graph.nodes] == [
        (0, "read"),
        (1, "work"),
        (2, "write"),
    ]
    assert all(edge.source < edge.target for edge in graph.edges)


def test_slot_sharing_group_is_inherited_when_all_inputs_agree() -> None:
    program = Program()
    program.op("a", slot_sharing_group="gpu")
    program.op("b")
    program.op("c", "a")
    program.op("d", "a", "b")
    program.op("e", "c", is_sink=True)
    groups = {node.name: node.slot_sharing_group for node in program.build().nodes}
    assert groups == {"a": "gpu", "b": "default", "c": "gpu", "d": "default", "e": "gpu"}


def test_max_parallelism_defaults_to_the_jobs() -> None:
    program = linear()
    program.nodes["work"].max_parallelism = 12
    graph = program.build(max_parallelism=64)
    assert [node.max_parallelism for node in graph.nodes] == [64, 12, 64]


# --- operator ids ------------------------------------------------------------------------------


def test_ids_do_not_depend_on_names_parallelism_chaining_or_descriptions() -> None:
    before = list(linear().ids().values())
    program = linear()
    for node in program.nodes.values():
        node.name, node.parallelism, node.chaining = node.name * 2, 3, "never"
        node.description, node.slot_sharing_group = "changed", "other"
    assert list(program.ids().values()) == before


def test_ids_are_the_same_in_every_process_for_ever() -> None:
    assert linear().ids() == {
        "read": "2427d7824e70e87d",
        "work": "3781fa780c3fcaeb",
        "write": "8bf2345bda7c3858",
    }
    assert uid_operator_id("totals") == "a1ac018bef6caa43"


def test_uid_alone_identifies_an_operator() -> None:
    program = linear()
    program.nodes["work"].uid = "totals"
    moved = Program()
    moved.op("read")
    moved.op("new", "read", spec=OtherSpec())
    moved.op("work", "new", uid="totals")
    moved.op("write", "work", is_sink=True)
    assert program.ids()["work"] == moved.ids()["work"] == uid_operator_id("totals")
    assert program.ids()["write"] == moved.ids()["write"], "a uid anchors what follows it"


def test_siblings_of_another_kind_do_not_change_ids() -> None:
    program = Program()
    program.op("read")
    program.op("other", "read", spec=OtherSpec(), is_sink=True)
    program.op("work", "read")
    program.op("write", "work", is_sink=True)
    before = linear().ids()
    assert {k: v for k, v in program.ids().items() if k in before} == before


def test_alike_siblings_are_told_apart_by_position() -> None:
    program = Program()
    program.op("read")
    program.op("one", "read", is_sink=True)
    program.op("two", "read", is_sink=True)
    ids = program.ids()
    assert ids["one"] != ids["two"]
    assert ids["one"] == linear().ids()["work"]


def test_inserting_an_operator_changes_the_ids_behind_it() -> None:
    program = Program()
    program.op("read")
    program.op("new", "read", spec=OtherSpec())
    program.op("work", "new")
    program.op("write", "work", is_sink=True)
    old, new = linear().ids(), program.ids()
    assert new["read"] == old["read"]
    assert new["work"] != old["work"]
    assert new["write"] != old["write"]


def test_duplicate_uid_names_both_operators() -> None:
    program = linear()
    program.nodes["read"].uid = program.nodes["write"].uid = "same"
    with pytest.raises(GraphError, match=r"'read' and 'write' both have the uid 'same'"):
        program.build()


# --- validation --------------------------------------------------------------------------------


def test_nothing_at_all() -> None:
    with pytest.raises(GraphError, match=r"has no operators.*from_source"):
        Program().build()


def test_no_sink_names_the_open_ends() -> None:
    program = Program()
    program.op("read")
    program.op("left", "read")
    program.op("right", "read")
    with pytest.raises(GraphError, match=r"no sink.*'left', 'right'.*sink_to"):
        program.build()


def test_parallelism_over_max_parallelism() -> None:
    program = linear()
    program.nodes["work"].parallelism, program.nodes["work"].max_parallelism = 5, 4
    with pytest.raises(GraphError, match=r"'work' has parallelism 5 but max_parallelism 4"):
        program.build()


def test_forward_between_different_parallelisms() -> None:
    program = Program()
    program.op("read", parallelism=2)
    program.op("write", Input(program.nodes["read"], None, Forward()), parallelism=3, is_sink=True)
    with pytest.raises(GraphError, match=r"'read' \(parallelism 2\) to 'write' \(parallelism 3\)"):
        program.build()


def test_a_reader_older_than_its_input_is_a_cycle() -> None:
    program = linear()
    program.nodes["work"].inputs = (Input(program.nodes["write"]),)
    with pytest.raises(GraphError, match=r"'work' reads 'write'.*no cycles"):
        program.build()


def test_an_operator_without_input_is_no_source() -> None:
    program = linear()
    program.nodes["work"].inputs = ()
    with pytest.raises(GraphError, match="'work' has no input"):
        program.build()


def test_operators_of_two_environments() -> None:
    one, two = linear(), linear()
    two.nodes["write"].inputs = (Input(one.nodes["work"]),)
    with pytest.raises(GraphError, match="different environments"):
        two.build()
