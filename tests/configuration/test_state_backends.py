"""Which backend keeps the state of which operator: of the job, by uid, by the operator itself."""

from __future__ import annotations

from typing import Any

import pytest
from strom import (
    Configuration,
    ConfigurationError,
    EmbeddedRocksDBStateBackend,
    GraphError,
    HashMapStateBackend,
    JobConfig,
    PredefinedOptions,
    StateConfig,
    StreamExecutionEnvironment,
    WatermarkStrategy,
    count,
)
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.state.keyed_state import KeyedStates
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.testing import OperatorHarness

make = StreamExecutionEnvironment.get_execution_environment
BY_UID = "strom.state.backend-by-uid"


def two_sums(env: StreamExecutionEnvironment) -> tuple[Any, Any]:
    pairs = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    totals = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    again = totals.uid("totals").key_by(lambda pair: pair[0]).reduce(max).uid("greatest")
    return totals, again


def backends(env: StreamExecutionEnvironment) -> dict[str, str | None]:
    vertices = env.get_job_graph().vertices
    return {o.uid: o.state_backend for v in vertices for o in v.operators if o.uid is not None}


# --- of the job ---------------------------------------------------------------------------------


def test_rocksdb_as_pyflinks_object() -> None:
    backend = EmbeddedRocksDBStateBackend()
    assert backend.is_incremental_checkpoints_enabled()
    assert backend.get_db_storage_paths() == []
    backend.set_db_storage_paths("/data/a", "file:///data/b")
    assert backend.get_db_storage_paths() == ["/data/a", "/data/b"]
    backend.set_number_of_transfer_threads(7)
    assert backend.get_number_of_transfer_threads() == 7
    backend.set_predefined_options(PredefinedOptions.DEFAULT)
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    assert backend.get_options() is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.set_db_storage_paths(), "needs one folder at least"),
        (lambda b: b.set_options("org.my.Factory"), "names a Java class"),
        (
            lambda b: b.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED),
            "no set SPINNING_DISK_OPTIMIZED .*chosen for streams",
        ),
        (
            lambda b: b.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM),
            "no set",
        ),
        (lambda b: b.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED), "no set"),
        (lambda b: b.set_number_of_transfer_threads(0), "at least 1"),
        (lambda b: EmbeddedRocksDBStateBackend("yes"), "enable_incremental_checkpointing"),
    ],
)
def test_what_rocksdb_has_no_place_for_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call(EmbeddedRocksDBStateBackend())


def test_a_backend_is_of_the_job() -> None:
    env = make()
    backend = EmbeddedRocksDBStateBackend(False)
    backend.set_db_storage_paths("/data")
    config = env.set_state_backend(backend).get_job_config()
    assert (config.state.backend, config.state.local_dirs) == ("rocksdb", ("/data",))
    assert not config.checkpoint.incremental
    back = env.get_state_backend()
    assert isinstance(back, EmbeddedRocksDBStateBackend)
    assert back == backend
    assert back.get_db_storage_paths() == ["/data"]
    assert env.set_state_backend("hashmap").get_state_backend() == HashMapStateBackend()
    assert env.get_job_config().state.local_dirs == ("/data",), "nobody took that back"
    with pytest.raises(ConfigurationError, match="no state backend 'rocksbd': did you mean 'rocks"):
        env.set_state_backend("rocksbd")
    with pytest.raises(ConfigurationError, match=r"expected HashMapStateBackend\(\), .* got 3"):
        env.set_state_backend(3)  # type: ignore[arg-type]


def test_what_an_object_leaves_open_stays() -> None:
    env = make(JobConfig(state=StateConfig(memory=1 << 20)))
    env.get_checkpoint_config().enable_incremental_checkpoints(False)
    config = env.set_state_backend(EmbeddedRocksDBStateBackend()).get_job_config()
    assert (config.state.memory, config.checkpoint.incremental) == (1 << 20, False)


# --- of an operator -----------------------------------------------------------------------------


def test_an_operator_has_its_own() -> None:
    env = make()
    totals, again = two_sums(env)
    totals.set_state_backend(EmbeddedRocksDBStateBackend())
    again.set_state_backend("hashmap").print()
    assert backends(env) == {"totals": "rocksdb", "greatest": "memory"}
    text = env.explain()
    assert text.count("keyed state: rocksdb") == text.count("keyed state: memory") == 1
    assert "keyed state: rocksdb" in env.explain(level="stream")


def test_a_uid_in_the_configuration_names_one() -> None:
    configuration = Configuration.from_dict(
        {"state.backend.type": "rocksdb", f"{BY_UID}.totals": "hashmap"}
    )
    env = make(configuration)
    two_sums(env)[1].print()
    assert backends(env) == {"totals": "memory", "greatest": None}
    assert env.get_job_config().state.backend == "rocksdb"
    assert env.get_configuration().to_dict()[BY_UID] == '{"totals": "memory"}'


def test_the_program_counts_more_than_the_configuration() -> None:
    env = make(Configuration.from_dict({f"{BY_UID}.totals": "rocksdb"}))
    totals, again = two_sums(env)
    totals.set_state_backend("memory")
    again.print()
    assert backends(env)["totals"] == "memory"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"total": "rocksdb"}, "no operator with the uid 'total': did you mean 'totals'"),
        ({"source": "rocksdb"}, "'Source: Collection' with the uid 'source' keeps no keyed state"),
        ({"totals": "rock"}, "no state backend 'rock': did you mean 'rocksdb'"),
    ],
)
def test_nonsense_is_refused_by_name(values: dict[str, str], message: str) -> None:
    def build() -> None:
        env = make(Configuration.from_dict({f"{BY_UID}.{k}": v for k, v in values.items()}))
        numbers = env.from_collection([("a", 1)]).uid("source")
        numbers.key_by(lambda p: p[0]).reduce(max).uid("totals").print()
        env.get_job_graph()

    with pytest.raises(ConfigurationError, match=message):
        build()


def test_only_what_keeps_keyed_state_takes_one() -> None:
    stream = make().from_collection([1]).map(abs)
    with pytest.raises(ConfigurationError, match="operator 'Map': it keeps no keyed state"):
        stream.set_state_backend("rocksdb")
    keyed = stream.key_by(lambda n: n)
    with pytest.raises(GraphError, match="only a view"):
        keyed.set_state_backend("rocksdb")
    with pytest.raises(ConfigurationError, match="'Map': it keeps no keyed state"):
        keyed.map(abs).set_state_backend("rocksdb")
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("/data")
    with pytest.raises(ConfigurationError, match="are the job's: set them with env"):
        keyed.reduce(max).set_state_backend(backend)


def test_operators_that_keep_keyed_state() -> None:
    env = make()
    rows = env.from_collection([{"k": 1, "v": 2}])
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("v")
    timed = rows.assign_timestamps_and_watermarks(times)
    keyed = timed.key_by("k")
    window = TumblingEventTimeWindows(10)
    for stream in (
        keyed.sum("v"),
        keyed.window(window).aggregate(n=count()),
        timed.window_all(window).aggregate(n=count()),
        keyed.aggregate(n=count()),
        keyed.deduplicate(),
        keyed.window_join(keyed, window),
        keyed.join(keyed),
    ):
        stream.set_state_backend("rocksdb")


# --- what runs ----------------------------------------------------------------------------------


def test_a_task_makes_what_each_operator_chose() -> None:
    env = make(JobConfig(state=StateConfig(by_uid={"totals": "rocksdb"})))
    again = two_sums(env)[1]
    seen: list[Any] = []
    make_state = KeyedStates.make

    def watched(self: KeyedStates, *args: Any) -> Any:
        state = make_state(self, *args)
        seen.append((args[3], isinstance(state, RocksKeyedStateBackend)))
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyedStates, "make", watched)
        assert sorted(again.execute_and_collect()) == [("a", 1), ("a", 4), ("b", 2)]
    assert ("rocksdb", True) in seen
    assert (None, False) in seen


def test_a_harness_takes_the_jobs_and_the_operators_choice() -> None:
    totals, again = two_sums(make())
    totals.set_state_backend("rocksdb")
    first = OperatorHarness.of(totals)
    assert isinstance(first.keyed_state, RocksKeyedStateBackend)
    first.push([("a", 1), ("b", 2)])
    restored = OperatorHarness.of(totals, restored=first.snapshot(), state_backend="memory")
    assert not isinstance(restored.keyed_state, RocksKeyedStateBackend)
    restored.push([("a", 3)])
    assert restored.outputs() == [("a", 4)]
    of_job = OperatorHarness.of(again, config=JobConfig(state=StateConfig("rocksdb")))
    assert isinstance(of_job.keyed_state, RocksKeyedStateBackend)
    for harness in (first, restored, of_job):
        harness.close()
