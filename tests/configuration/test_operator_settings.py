"""Settings of single operators: ids, buffer timeouts, slot sharing groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom import (
    ConfigurationError,
    GraphError,
    JobConfig,
    MemorySize,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from strom.core.config import SlotResources
from strom.engine.exchange.metering import InFlight
from strom.engine.exchange.sender import ChannelSender
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.slots import bundles_of, lacking, slots_of

make = StreamExecutionEnvironment.get_execution_environment


def program(env: StreamExecutionEnvironment) -> Any:
    numbers = env.from_collection([1, 2]).map(abs)
    numbers.key_by(lambda n: n).sum(0).print()
    return numbers


# --- ids ---------------------------------------------------------------------------------------


def test_a_uid_hash_is_the_id_as_it_is() -> None:
    env = make()
    program(env).uid("mapped").set_uid_hash("ABCDEF0123456789")
    ids = [node.operator_id for node in env.get_stream_graph().nodes]
    assert ids[1] == "abcdef0123456789"
    with pytest.raises(ConfigurationError, match="'Map' needs 16 or 32 hexadecimal digits"):
        program(make()).set_uid_hash("mine")


def test_two_operators_cannot_have_one_uid_hash() -> None:
    env = make()
    program(env).set_uid_hash("0" * 32).map(abs).set_uid_hash("0" * 32).print()
    with pytest.raises(GraphError, match="have the same id 0000"):
        env.get_stream_graph()


def test_uids_for_all_where_a_program_wants_that() -> None:
    env = make()
    env.get_config().disable_auto_generated_uids()
    stream = env.from_collection([1]).uid("source").map(abs).name("twice")
    stream.print().set_uid_hash("0" * 16)
    with pytest.raises(GraphError, match=r"but 'twice' have none: give each operator"):
        env.get_stream_graph()
    stream.uid("twice")
    assert len(env.get_stream_graph().nodes) == 3


# --- buffer timeouts ---------------------------------------------------------------------------


def test_a_buffer_timeout_is_of_the_channels_that_the_operator_feeds() -> None:
    env = make(JobConfig(parallelism=2)).set_buffer_timeout(40)
    program(env).set_buffer_timeout(0)
    graph = build_execution_graph(env.get_job_graph())
    timeouts = {(c.edge, c.buffer_timeout) for c in graph.channels}
    assert timeouts == {(0, None), (1, timedelta(0))}
    exchange = graph.job.config.exchange
    link: Any = None
    senders = [ChannelSender(c, exchange, link, InFlight()) for c in graph.channels]
    assert {(s.channel.edge, s._timeout) for s in senders} == {(0, 0.04), (1, 0.0)}
    with pytest.raises(ConfigurationError, match="buffer_timeout must be at least"):
        program(make()).set_buffer_timeout(-2)


# --- slots -------------------------------------------------------------------------------------

HEAVY = (
    SlotSharingGroup.builder("heavy")
    .set_cpu_cores(2)
    .set_task_heap_memory_mb(64)
    .set_managed_memory(MemorySize.of_mebi_bytes(32))
    .set_external_resource("GPU", 0.5)
    .build()
)


def test_a_group_of_slots_as_pyflink_has_it() -> None:
    assert (HEAVY.get_name(), HEAVY.get_cpu_cores()) == ("heavy", 2)
    assert HEAVY.get_task_heap_memory() == MemorySize.of_mebi_bytes(64)
    assert HEAVY.get_managed_memory() == MemorySize.of_mebi_bytes(32)
    assert HEAVY.get_task_off_heap_memory() is None
    assert HEAVY.get_external_resources() == {"GPU": 0.5}
    assert HEAVY.resources() == SlotResources(2, 96 << 20, {"GPU": 0.5})
    whole = MemorySize.of_mebi_bytes
    by_size = SlotSharingGroup.builder("m").set_task_heap_memory(whole(1))
    by_size = by_size.set_task_off_heap_memory(whole(2)).set_managed_memory(whole(4))
    by_number = SlotSharingGroup.builder("m").set_task_heap_memory_mb(1)
    by_number = by_number.set_task_off_heap_memory_mb(2).set_managed_memory_mb(4)
    assert by_number.build() == by_size.build()
    assert by_number.build().get_task_off_heap_memory() == whole(2)
    assert by_number.build().get_managed_memory() == whole(4)
    assert by_number.build().resources() == SlotResources(None, 7 << 20)
    assert {HEAVY: "groups are keys of dicts"}[HEAVY]
    stated = SlotSharingGroup.builder("heavy")
    stated.set_cpu_cores(2)
    stated.set_task_heap_memory_mb(64)
    stated.set_managed_memory_mb(32)
    stated.set_external_resource("GPU", 0.5)
    assert stated.build() == HEAVY  # PyFlink's builder is changed in place
    for name in ("", "CPU", "memory", "object_store_memory", "bundle", "node:10.0.0.1"):
        with pytest.raises(ConfigurationError, match="resource"):
            SlotSharingGroup.builder("x").set_external_resource(name, 1.0)
    with pytest.raises(ConfigurationError, match="CPUs of a slot"):
        SlotSharingGroup.builder("x").set_cpu_cores(-1)
    with pytest.raises(ConfigurationError, match="must have a name"):
        SlotSharingGroup.builder("")


@pytest.mark.parametrize("registered", [True, False])
def test_slots_of_a_group_take_what_it_says(registered: bool) -> None:
    env = make(JobConfig(parallelism=2, slot_cpus=0.25))
    group: Any = HEAVY
    if registered:
        env.register_slot_sharing_group(HEAVY)
        group = "heavy"
    program(env).slot_sharing_group(group)
    graph = env.get_job_graph()
    heavy = {"CPU": 2, "memory": 96 << 20, "GPU": 0.5}
    assert bundles_of(graph) == [{"CPU": 0.25}, heavy, heavy]
    assert len(set(slots_of(graph).values())) == 3


def test_a_group_has_slots_of_one_kind() -> None:
    env = make()
    other = SlotSharingGroup.builder("heavy").set_cpu_cores(1).build()
    program(env).slot_sharing_group(HEAVY).map(abs).slot_sharing_group(other).print()
    with pytest.raises(GraphError, match="both in the slot sharing group 'heavy'"):
        env.get_stream_graph()


def test_what_a_cluster_lacks() -> None:
    have = {"CPU": 4.0, "memory": 100.0, "node": 1.0}
    text = lacking([{"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 2, "GPU": 1}], have, {"CPU": 0.5})
    assert text == (
        "the job needs 2 slots of 1.0 CPU and 1 slots of 2 CPU, 1 GPU, the cluster has 4.0 CPU, "
        "0 GPU of which 0.5 CPU, 0 GPU are free"
    )


def test_a_job_with_its_own_settings_runs() -> None:
    env = make(JobConfig(parallelism=2))
    stream = env.from_collection([1, 2, 3]).map(lambda n: n + 1).set_buffer_timeout(-1)
    stream = stream.slot_sharing_group(HEAVY).set_uid_hash("0123456789abcdef")
    with stream.execute_and_collect() as results:
        assert sorted(results) == [2, 3, 4]
